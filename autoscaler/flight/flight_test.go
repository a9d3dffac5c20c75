package flight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// thing has a field of each kind that can be recorded.
type thing struct {
	On     bool
	N      int
	Small  int8
	Big    uint64
	F      float64
	F32    [3]float32
	Text   string
	At     time.Time
	For    time.Duration
	Parts  []part
	Of     map[string]int64
	Maybe  *part
	Names  []string
	hidden int //nolint:unused // it is not recorded
}

type part struct {
	Name string
	At   time.Time
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("CET", 3600))

func someThing(r *rand.Rand) *thing {
	t := &thing{On: r.IntN(2) == 0, N: r.IntN(5) - 2, Small: int8(r.IntN(256)), Big: r.Uint64(), F: r.Float64(), Text: strings.Repeat("x", r.IntN(3)*400)}
	t.F32[r.IntN(3)] = r.Float32()
	switch r.IntN(4) {
	case 0:
		t.At = noon.Add(time.Duration(r.Int64N(1e12)))
	case 1:
		t.At = time.Date(1+r.IntN(9999), 1, 1, 0, 0, 0, 7, noon.Location())
	}
	if r.IntN(2) == 0 {
		t.Names = []string{"a", "b", fmt.Sprint(r.IntN(4))}
	}
	for range r.IntN(4) {
		t.Parts = append(t.Parts, part{fmt.Sprint("p", r.IntN(9)), noon})
	}
	if r.IntN(2) == 0 {
		t.Of, t.Maybe = map[string]int64{"cpu": r.Int64N(9), "memory": 5}, &part{Name: "one"}
	}
	return t
}

// TestWhatIsReadIsWhatWasWritten writes values at random and reads them.
func TestWhatIsReadIsWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		rec, folder := recording(t, Config{MostAge: 20 * time.Second})
		type round struct {
			At   time.Time
			Step time.Duration
			Keys []string
			Of   []*thing
		}
		var want []round
		now := noon
		rec.run(func() {
			for range 200 {
				if rec.Due(now) {
					rec.Begin(now, now, &thing{N: len(want)}, nil)
				}
				now = now.Add(time.Duration(r.IntN(1e6)) * time.Microsecond)
				w := round{At: now, Step: time.Duration(r.IntN(3)-1) * time.Hour}
				rec.Round(now, w.Step)
				for range r.IntN(5) {
					k, v := fmt.Sprint("kind", r.IntN(3)), someThing(r)
					rec.Add(k, v)
					w.Keys, w.Of = append(w.Keys, k), append(w.Of, v)
				}
				rec.End()
				want = append(want, w)
				time.Sleep(100 * time.Millisecond)
			}
		})
		segments, err := Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		var got []round
		for _, s := range segments {
			var state thing
			in, err := s.Reader(&state)
			if err != nil || state.N != len(got) {
				t.Fatalf("the state of the segment at round %d: %v, %+v", len(got), err, state)
			}
			for {
				r, err := in.Round()
				if errors.Is(err, io.EOF) {
					break
				}
				g := round{At: r.At, Step: r.Step}
				for _, item := range r.In {
					v := new(thing)
					err = errors.Join(err, json.Unmarshal(item.Value, v))
					g.Keys, g.Of = append(g.Keys, item.Kind), append(g.Of, v)
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, g)
			}
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(thing{})); d != "" || len(segments) < 3 {
			t.Errorf("%d segments (-written +read):\n%s", len(segments), d)
		}
	})
}

// TestNotEncodable: a value that JSON can't have ends the segment with that reason, and recording begins again.
// TestZone: a segment begins in the time zone of its first round.
func TestZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, folder := recording(t, Config{})
		rec.run(func() {
			rec.Begin(noon.UTC(), noon, &thing{}, nil)
			rec.Round(noon, 0)
			rec.End()
		})
		segments, err := Open(folder)
		if err != nil || len(segments) != 1 {
			t.Fatalf("%d segments, %v", len(segments), err)
		}
		if got := segments[0].Began.Format(time.RFC3339); got != "2026-03-01T12:00:00+01:00" {
			t.Errorf("it began at %s", got)
		}
	})
}

func TestNotEncodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, folder := recording(t, Config{})
		rec.run(func() {
			rec.rounds(3, 10)
			rec.Round(noon.Add(time.Minute), 0)
			rec.Add("text", &thing{F: math.NaN()})
			rec.End()
			rec.rounds(100, 10)
		})
		segments, err := Open(folder)
		if err != nil || len(segments) != 2 || segments[0].Rounds != 3 || segments[0].Why != "encode: json: unsupported value: NaN" || segments[1].Follows {
			t.Errorf("there are %d segments: %v, the first %+v", len(segments), err, segments[0])
		}
	})
}

// recorder is one with its folder, as tests run it.
type recorder struct{ *Recorder }

func recording(t *testing.T, cfg Config) (recorder, string) {
	t.Helper()
	if cfg.Folder == "" {
		cfg.Folder = filepath.Join(t.TempDir(), "record")
	}
	return recorder{New(cfg, slog.New(slog.DiscardHandler))}, cfg.Folder
}

// run has it write while body records.
func (r recorder) run(body func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	body()
	cancel()
	<-done
}

// rounds records so many, each with a text that can't be compressed.
func (r recorder) rounds(n, bytes int) {
	now := noon
	for k := range n {
		if r.Due(now) {
			r.Begin(now, now, &thing{}, nil)
		}
		now = now.Add(time.Second)
		text := make([]byte, bytes)
		random := rand.NewChaCha8([32]byte{byte(k), byte(k >> 8)})
		_, _ = random.Read(text)
		r.Round(now, 0)
		r.Add("text", &thing{Text: fmt.Sprintf("%x", text)})
		r.End()
		time.Sleep(time.Second)
	}
}

// TestOldestGoesFirst: all together are never more than they may be, what is kept is the newest, and nobody else can read it.
func TestOldestGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, folder := recording(t, Config{MostBytes: LeastBytes})
		rec.run(func() { rec.rounds(600, 5000) })
		files, err := Files(folder)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, f := range files {
			sum += f.Size
			if info, err := os.Stat(f.Path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: mode %v, %v", f.Path, info.Mode(), err)
			}
		}
		if sum > LeastBytes+LeastBytes/50 || sum < LeastBytes*3/4 {
			t.Errorf("%d files have %d bytes, want about %d", len(files), sum, LeastBytes)
		}
		segments, err := Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		last := segments[len(segments)-1]
		if first := segments[0]; first.Began.Equal(noon) || !last.Began.After(noon.Add(9*time.Minute)) || last.Why != Ended {
			t.Errorf("kept is from %s to %s, which ended because %q", first.Began, last.Began, last.Why)
		}
		var all bytes.Buffer
		if err := rec.Copy(&all); err != nil {
			t.Fatal(err)
		}
		if copied, err := Parse(all.Bytes()); err != nil || len(copied) != len(segments) {
			t.Errorf("a copy has %d segments, want %d: %v", len(copied), len(segments), err)
		}
	})
}

// TestNoDisk: where nothing can be written the owner goes on, the log says why, and recording begins again when it can.
func TestNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "record")
		if err := os.WriteFile(folder, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		rec, _ := recording(t, Config{Folder: folder})
		var log bytes.Buffer
		rec.log = slog.New(slog.NewTextHandler(&log, nil))
		rec.run(func() {
			rec.rounds(10, 10)
			if err := os.Remove(folder); err != nil {
				t.Error(err)
			}
			rec.rounds(100, 10)
		})
		segments, err := Open(folder)
		if err != nil || len(segments) != 1 || segments[0].Follows {
			t.Errorf("there are %d segments: %v", len(segments), err)
		}
		if !strings.Contains(log.String(), "not a directory") {
			t.Errorf("the log says %q", log.String())
		}
	})
}

// TestTooDear: what would take more than its share of a core stops for a while, and says so.
func TestTooDear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, folder := recording(t, Config{})
		rec.run(func() {
			rec.rounds(3, 10)
			rec.mu.Lock()
			rec.spend(2 * time.Second)
			rec.mu.Unlock()
			rec.rounds(200, 10)
		})
		segments, err := Open(folder)
		if err != nil || len(segments) != 2 || segments[0].Why != "it would take more than 0.01 of a core" || segments[1].Follows {
			t.Errorf("there are %d segments: %v, the first ended because %q", len(segments), err, segments[0].Why)
		}
		if got := rec.Cost(); got != 2*time.Second {
			t.Errorf("it has cost %s", got)
		}
	})
}
