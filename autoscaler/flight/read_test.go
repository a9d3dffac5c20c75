package flight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// written returns a record of the given number of segments and rounds, and where the second segment begins.
func written(t testing.TB, segments, rounds int) (data []byte, second int) {
	var b bytes.Buffer
	for k := range segments {
		if k == 1 {
			second = b.Len()
		}
		w, err := newSegmentWriter(&b, Header{Version: "v1", Arch: "amd64", Run: "run", Began: noon}, someThing(rand.New(rand.NewPCG(1, uint64(k)))))
		if err != nil {
			t.Fatal(err)
		}
		for n := range rounds {
			value, err := json.Marshal(someThing(rand.New(rand.NewPCG(2, uint64(n)))))
			if err != nil {
				t.Fatal(err)
			}
			at := noon.Add(time.Duration(n) * time.Second).Format(time.RFC3339)
			if err := w.write(fmt.Appendf(nil, "{\"at\":%q}\n{\"kind\":\"thing\",\"value\":%s}\n", at, value)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.end(""); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes(), second
}

// rounds returns the rounds that can be read of s, preceded by its state.
func rounds(s *Segment) (all []string, err error) {
	var state thing
	r, err := s.Reader(&state)
	if err != nil {
		return nil, err
	}
	state.Maybe = nil // its address differs
	for all = append(all, fmt.Sprint(state)); ; {
		round, err := r.Round()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, fmt.Sprintf("%s %s", round.At, round.In))
	}
}

// TestDamage checks that the intact parts of a file that was cut or changed are used, and that the rest is reported.
func TestDamage(t *testing.T) {
	data, second := written(t, 3, 20)
	for _, tt := range []struct {
		name   string
		edit   func(b []byte) []byte
		rounds []int // of each segment
		damage []string
		err    string
	}{
		{"whole", func(b []byte) []byte { return b }, []int{20, 20, 20}, []string{"", "", ""}, ""},
		{"cut in the third", func(b []byte) []byte { return b[:len(b)-200] }, []int{20, 20, -1}, []string{"", "", "the file ends in the middle"}, ""},
		{"a byte of the second is another", func(b []byte) []byte { b[second+1200] ^= 1; return b }, []int{20, -1, 20}, []string{"", "the checksum is wrong", ""}, ""},
		{"the second is cut", func(b []byte) []byte {
			return append(b[:second+1200:second+1200], b[bytes.LastIndex(b, []byte(magic)):]...)
		}, []int{20, -1, 20}, []string{"", "", ""}, ""},
		{"nothing", func([]byte) []byte { return nil }, nil, nil, "it is empty"},
		{"something else", func([]byte) []byte { return []byte("PK\x03\x04") }, nil, nil, "it is no flight record"},
		{"a newer one", func(b []byte) []byte { return bytes.Replace(b, []byte("record 3"), []byte("record 4"), 1) }, nil, nil, "another version of Rouse has written"},
		{"the header alone", func(b []byte) []byte { return b[:len(magic)] }, nil, nil, "the file ends in the middle of a segment"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			segments, err := Parse(tt.edit(bytes.Clone(data)))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || len(segments) != len(tt.rounds) {
				t.Fatalf("got %d segments, want %d: %v", len(segments), len(tt.rounds), err)
			}
			for k, s := range segments {
				all, err := rounds(s)
				n := len(all) - 1
				if err != nil || n != tt.rounds[k] && !(tt.rounds[k] < 0 && n > 0 && n < 20 && s.Damage != "") || !strings.Contains(s.Damage, tt.damage[k]) {
					t.Errorf("segment %d: got %d rounds, want %d; damage %q, want %q; %v", k, n, tt.rounds[k], s.Damage, tt.damage[k], err)
				}
			}
		})
	}
}

// lost compares the intact parts of data with the whole record. It counts the missing rounds and states, and reports
// whether anything says so.
func lost(t *testing.T, whole [][]string, data []byte) (missing int, said bool) {
	t.Helper()
	segments, err := Parse(data)
	said = err != nil
	read := make(map[int]int) // by segment: the states in them are all different
	for _, s := range segments {
		said = said || s.Damage != ""
		if s.Run == "" {
			continue
		}
		all, err := rounds(s)
		if err != nil {
			t.Fatal(err)
		}
		of := slices.IndexFunc(whole, func(w []string) bool { return w[0] == all[0] })
		if of < 0 || len(all) > len(whole[of]) || !slices.Equal(all, whole[of][:len(all)]) {
			t.Fatal("something is read that was never written")
		}
		read[of] += len(all)
	}
	for k, w := range whole {
		missing += len(w) - read[k]
	}
	return missing, said
}

// TestEachByte cuts a file at each byte, and flips a bit of each byte. Nothing is read that was not written, and every
// gap is reported. A cut between two chunks is no gap: a file that is being written looks the same.
func TestEachByte(t *testing.T) {
	const m, n = 2, 1
	data, _ := written(t, m, n)
	segments, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	var whole [][]string
	for _, s := range segments {
		all, err := rounds(s)
		if err != nil || len(all) != 1+n || s.Rounds != n || !s.Last.Equal(noon.Add((n-1)*time.Second)) {
			t.Fatalf("%d rounds, the last at %s, %v", s.Rounds, s.Last, err)
		}
		whole = append(whole, all)
	}
	silent := 0
	for n := range data {
		if missing, said := lost(t, whole, data[:n]); missing > 0 && !said {
			silent++
		}
	}
	if want := m * (n + 2) * 8; silent > want { // a segment has a state, rounds and an ending: each may lack the bytes behind its sum
		t.Errorf("of %d lengths %d lack something and say nothing, want %d at most", len(data), silent, want)
	}
	for n := range data {
		changed := bytes.Clone(data)
		for bit := range 8 {
			changed[n] = data[n] ^ 1<<bit
			if missing, said := lost(t, whole, changed); missing > 0 && !said {
				t.Errorf("byte %d, bit %d: %d rounds are missing, and nothing says so", n, bit, missing)
			}
		}
	}
}

// TestOpenFolder: a file that can't be read, such as one that was begun on a full disk, does not hide the others.
func TestOpenFolder(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(folder, name+suffix), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("b", nil)
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "b.flight: it is empty") {
		t.Errorf("nothing can be read: got %v", err)
	}
	data, _ := written(t, 1, 3)
	write("a", bytes.Replace(data, []byte("record 3"), []byte("record 2"), 1))
	write("c", data)
	segments, err := Open(folder)
	if err != nil || len(segments) != 3 || !strings.Contains(segments[0].Damage, "another version") || segments[1].Damage != "it is empty" || segments[2].Rounds != 3 {
		t.Errorf("got %d segments, %v", len(segments), err)
	}
}

// TestAnotherShape: a state of another version is refused if it does not fit.
func TestAnotherShape(t *testing.T) {
	data, _ := written(t, 3, 20)
	segments, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = segments[0].Reader(&struct{ Text int }{}); err == nil || !strings.Contains(err.Error(), "the state: json: cannot unmarshal string into Go struct field .Text of type int") {
		t.Errorf("got %v", err)
	}
}

// FuzzRead reads anything: it may be refused, and nothing else.
func FuzzRead(f *testing.F) {
	data, second := written(f, 3, 20)
	f.Add(data)
	f.Add(data[:second])
	f.Add(data[:second-30])
	f.Fuzz(func(t *testing.T, data []byte) {
		segments, err := Parse(data)
		if err != nil && len(segments) > 0 {
			t.Errorf("segments and %v", err)
		}
		for _, s := range segments {
			_, _ = rounds(s) // an error is as good as none
		}
	})
}
