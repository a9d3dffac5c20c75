package flight

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// written is a record of three segments, and where the second begins.
func written(t testing.TB) (data []byte, second int) {
	var b bytes.Buffer
	shape, err := Shape(&thing{})
	if err != nil {
		t.Fatal(err)
	}
	for k := range 3 {
		if k == 1 {
			second = b.Len()
		}
		w, err := newSegmentWriter(&b, Header{Version: "v1", Arch: "amd64", Shape: shape, Began: noon, Zone: "CET", Offset: 3600})
		if err != nil {
			t.Fatal(err)
		}
		var content bytes.Buffer
		err = gob.NewEncoder(&content).Encode(someThing(rand.New(rand.NewPCG(1, uint64(k)))))
		err = errors.Join(err, w.data(content.Bytes()))
		content.Reset()
		e := gob.NewEncoder(&content)
		for n := range 20 {
			for _, v := range []any{head{Now: noon}, uint8(1), someThing(rand.New(rand.NewPCG(2, uint64(n)))), uint8(0)} {
				err = errors.Join(err, e.Encode(v))
			}
			err = errors.Join(err, w.data(content.Bytes()))
			content.Reset()
		}
		if err = errors.Join(err, w.end("")); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes(), second
}

// rounds counts the rounds that can be read of s.
func rounds(s *Segment, shape string) (n int, err error) {
	r, err := s.Reader(shape, "v2")
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if err := r.State(new(thing)); err != nil {
		return 0, err
	}
	for ; ; n++ {
		if _, _, err := r.Round(); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, err
		}
		for _, found := r.Next(); found; _, found = r.Next() {
			r.Take(new(thing))
		}
		if r.Err() != nil {
			return n, r.Err()
		}
	}
}

// TestDamage: of a file that is cut or changed what is whole is used, and the rest is said.
func TestDamage(t *testing.T) {
	data, second := written(t)
	shape := shapeOf(t)
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
		{"a newer one", func(b []byte) []byte { return bytes.Replace(b, []byte("record 2\n"), []byte("record 3\n"), 1) }, nil, nil, "another version of Rouse has written"},
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
				n, err := rounds(s, shape)
				if err != nil || n != tt.rounds[k] && !(tt.rounds[k] < 0 && n > 0 && n < 20 && s.Damage != "") || !strings.Contains(s.Damage, tt.damage[k]) {
					t.Errorf("segment %d: got %d rounds, want %d; damage %q, want %q; %v", k, n, tt.rounds[k], s.Damage, tt.damage[k], err)
				}
			}
		})
	}
}

// lost compares what is read of data with the whole record: what is there is as it was. It counts chunks that are missing, and says whether anything says so.
func lost(t *testing.T, whole []*Segment, data []byte) (missing int, said bool) {
	t.Helper()
	segments, err := Parse(data)
	said = err != nil
	read := make(map[int]int) // chunks by segment: the states in them are all different
	for _, s := range segments {
		said = said || s.Damage != ""
		for k, c := range s.chunks {
			of := slices.IndexFunc(whole, func(w *Segment) bool {
				return k < len(w.chunks) && bytes.Equal(w.chunks[k], c) && bytes.Equal(w.chunks[0], s.chunks[0])
			})
			if of < 0 {
				t.Fatal("a chunk is read that was never written")
			}
			read[of]++
		}
	}
	for k, w := range whole {
		missing += len(w.chunks) - read[k]
	}
	return missing, said
}

// TestEachByte: a file that is cut anywhere, or has another bit anywhere, gives nothing that was not written; and whatever is missing is said, but where it was
// cut between two chunks: that is what a file looks like that is being written.
func TestEachByte(t *testing.T) {
	data, _ := written(t)
	whole, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	silent := 0
	for n := range data {
		if missing, said := lost(t, whole, data[:n]); missing > 0 && !said {
			silent++
		}
	}
	if most := 3*22 + 3; silent > most { // a segment has a header, a state, and twenty rounds, and begins where one has ended
		t.Errorf("of %d lengths %d lack something and say nothing, want %d at most", len(data), silent, most)
	}
	for n := range data {
		changed := bytes.Clone(data)
		for bit := range 8 {
			changed[n] = data[n] ^ 1<<bit
			if missing, said := lost(t, whole, changed); missing > 0 && !said {
				t.Errorf("byte %d, bit %d: %d chunks are missing, and nothing says so", n, bit, missing)
			}
		}
	}
}

// TestAnotherShape: what another version has written in another way is not read as if it were ours.
func TestAnotherShape(t *testing.T) {
	data, _ := written(t)
	segments, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Shape(&part{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = segments[0].Reader(other, "v2")
	if err == nil || !strings.Contains(err.Error(), "recorded by Rouse v1") || !strings.Contains(err.Error(), "this Rouse v2") {
		t.Errorf("got %v", err)
	}
	for _, v := range []any{&struct{ F func() }{}, &struct{ C chan int }{}, &struct{ V any }{}, &struct{ M map[int]int }{}} {
		if _, err := Shape(v); err == nil {
			t.Errorf("%T is taken", v)
		}
	}
}

// FuzzRead reads anything: it may be refused, and nothing else.
func FuzzRead(f *testing.F) {
	data, second := written(f)
	f.Add(data)
	f.Add(data[:second])
	f.Add(data[:second-30])
	shape, err := Shape(&thing{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		segments, err := Parse(data)
		if err != nil && len(segments) > 0 {
			t.Errorf("segments and %v", err)
		}
		for _, s := range segments {
			_, _ = rounds(s, shape) // an error is as good as none
		}
	})
}
