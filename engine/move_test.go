package engine_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/worker"
)

// TestMove moves a generation to another engine with the same folder, after each of the first tokens. The text is the
// same to the last bit. The new engine reads the computed blocks instead of computing them, unless nothing could be
// written.
func TestMove(t *testing.T) {
	const tokens = 60
	model := [32]byte{1}
	path := infertest.File(t, infertest.Spec{})
	for name, test := range map[string]struct {
		launch worker.Launch
		broken bool
	}{"inside": {}, "in a process": {launch: worker.Process{}.Launch}, "no folder to write to": {broken: true}} {
		t.Run(name, func(t *testing.T) {
			cfg := engine.Config{Keep: engine.Keep{Dir: t.TempDir(), Limit: 64 << 20, Model: &model}}
			from := &talk{t: t, path: path, launch: test.launch, cfg: cfg}
			to := &talk{t: t, path: path, launch: test.launch, cfg: cfg}
			from.begin()
			defer from.end()
			to.begin()
			defer to.end()
			if test.broken {
				from.turn(engine.Request{Prompt: history(0)}) // both have opened it by then
				to.turn(engine.Request{Prompt: history(0)})
				if err := os.RemoveAll(cfg.Keep.Dir); err != nil {
					t.Fatal(err)
				}
			}
			moved := 0
			for n := 1; n <= 20; n++ {
				r := engine.Request{Prompt: history(n), MaxTokens: tokens, IgnoreEnd: true}
				begun, cut := from.part(r, n)
				want, _ := from.part(r, tokens)
				read := to.e.Stats().Recalled
				if cut {
					moved++
					r.Resume = [][]int32{begun}
					rest, _ := to.part(r, tokens)
					if diff := cmp.Diff(want, rest); diff != "" {
						t.Fatalf("moved behind token %d (-whole +moved):\n%s", len(begun), diff)
					}
					if got, most := to.e.Stats().Recalled-read, (len(r.Prompt)+len(begun))/16; !test.broken && (got < most-1 || got > most) || test.broken && got > 0 {
						t.Errorf("moved behind token %d: %d blocks were read, want %d or one less", len(begun), got, most)
					}
				}
			}
			if moved < 10 {
				t.Errorf("%d of 20 answers were moved: the others had ended", moved)
			}
		})
	}
}

// part runs a request, and has the engine hand over after n tokens. It returns the tokens, including the request's
// Resume, and whether the answer was cut.
func (k *talk) part(r engine.Request, n int) (tokens []int32, cut bool) {
	k.t.Helper()
	s, err := k.e.Add(k.t.Context(), r)
	if err != nil {
		k.t.Fatal(err)
	}
	defer s.Close()
	slept := make(chan error, 1)
	for {
		ev, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
		case errors.Is(err, engine.ErrInterrupted):
			cut = true
		case err != nil:
			k.t.Fatal(err)
		default:
			if tokens = append(tokens, ev.Token); len(tokens) == n {
				go func() { slept <- k.e.Sleep(k.t.Context(), 1, engine.SleepMove) }()
			}
			continue
		}
		if len(tokens) >= n {
			if err := <-slept; err != nil {
				k.t.Fatal(err)
			}
			if _, err := k.e.Wake(k.t.Context()); err != nil {
				k.t.Fatal(err)
			}
		}
		return tokens, cut
	}
}
