// The benchmark conversations measures the cost of a sleep between two turns of a conversation, beside an engine that
// never slept and one that keeps nothing.
//
//	go run ./e2e/bench conversations -rouse bin/rouse -o docs/bench/conversations.json
//
// With -move it measures the pause of a stream that continues at another engine:
//
//	go run ./e2e/bench conversations -rouse bin/rouse -move -tokens 1000 -o docs/bench/move.json
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

func runConversations() {
	var o talkOptions
	flag.StringVar(&o.rouse, "rouse", "bin/rouse", "the program")
	flag.StringVar(&o.models, "models", Models(), "folder for generated models")
	flag.IntVar(&o.tokens, "tokens", history, "tokens of a conversation")
	move := flag.Bool("move", false, "measure streams that go on at another engine instead")
	report.Main(func(ctx context.Context, r *report.Run) error {
		o.reps, o.small = report.Sized(r.Small, 3, 1), r.Small
		o.tokens = report.Sized(r.Small, o.tokens, 4*more)
		for _, s := range talkModels() {
			measure := s.measure
			if *move {
				measure = s.moves
			}
			if !r.Selects(s.name) {
				continue
			}
			if err := measure(ctx, o, r.Add); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		return nil
	})
}

type talkOptions struct {
	rouse, models string
	reps          int
	tokens        int
	small         bool
}

const (
	history = 4000 // tokens of a conversation before the turn
	more    = 16   // that the turn adds
)

type talkModel struct {
	name   string
	length int // tokens of a stream that is moved, enough that it does not end earlier
	spec   infertest.Spec
}

func talkModels() []talkModel {
	return []talkModel{
		{"15M Q8_0", 400, infertest.Spec{Arch: "llama", Dim: 288, Layers: 6, Heads: 6, FFN: 768, Vocab: 32000, Context: 8192, Std: 0.02, Type: gguf.Q8_0}},
		{half.name, 64, half.spec},
	}
}

func (s talkModel) model(o talkOptions) (string, error) {
	return Model(o.models, fmt.Sprintf("%s-%d", strings.ReplaceAll(strings.ToLower(s.name), " ", "-"), s.spec.Context), s.spec, o.small)
}

// talkSeries is in milliseconds, by measurement.
type talkSeries map[string][]float64

func (s talkModel) measure(ctx context.Context, o talkOptions, add func(...report.Measurement)) error {
	path, err := s.model(o)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "conversations")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	x := &talk{o: o, model: path, folder: folder, took: talkSeries{}}
	defer x.end()
	for rep := range o.reps {
		if err := x.round(ctx, rand.New(rand.NewPCG(1, uint64(rep))), min(s.spec.Vocab, 1000)); err != nil {
			return err
		}
	}
	turn := fmt.Sprintf("time to first token of a turn of %d tokens after %d", more, o.tokens)
	never, first := x.took["never"], x.took["never"][:o.reps]
	compare := func(name, what, against string, ours, theirs []float64) report.Measurement {
		return report.Compare(report.Measurement{Name: name + ", " + s.name, What: what, Unit: "ms", Against: against}, ours, theirs)
	}
	gated := func(m report.Measurement) report.Measurement { return m.Gated(m.Ratio >= 10, "at least 10 x") }
	m := compare("after level 1", turn+", after a sleep at level 1 and its wake", "never slept", x.took["level 1"], never)
	add(m.Gated(m.Ratio <= 1.2, "at most 1.2 x of never slept"),
		gated(compare("after level 1, nothing kept", turn+", by an engine that keeps nothing", "one that keeps it", x.took["without"], x.took["level 1"][:o.reps])),
		compare("wake from level 1", "POST /wake_up", "an engine that keeps nothing", firsts(x.took["wake"], o.reps), x.took["wake without"]),
		compare("after level 2", turn+", after a sleep at level 2, from a file", "never slept", x.took["level 2"], first),
		compare("after a start", turn+", by a new process, from a file", "never slept", x.took["anew"], first),
		gated(compare("after a start, nothing kept", turn+", by a new process without files", "from a file", x.took["anew without"], x.took["anew"])),
		report.Of(report.Measurement{Name: "sleep at level 1, " + s.name, What: "POST /sleep?level=1 that keeps the conversation in memory", Unit: "ms"}, firsts(x.took["sleep 1"], o.reps)...),
		report.Of(report.Measurement{Name: "sleep at level 2, " + s.name, What: "POST /sleep?level=2 that writes the conversation to a file", Unit: "ms"}, x.took["sleep 2"]...))
	return nil
}

func firsts(all []float64, rounds int) (list []float64) {
	for i := range rounds {
		list = append(list, all[i*len(all)/rounds])
	}
	return list
}

func draw(rng *rand.Rand, vocab, n int) (list []int) {
	for range n {
		list = append(list, 300+rng.IntN(vocab-300))
	}
	return list
}

// talk is two engines: one keeps conversations, the other does not.
type talk struct {
	o             talkOptions
	model, folder string
	keeps, drops  *Engine
	took          talkSeries
	length        int
}

func (x *talk) end() {
	for _, s := range []*Engine{x.keeps, x.drops} {
		if s != nil {
			s.Stop()
		}
	}
}

func (x *talk) begin(ctx context.Context, s **Engine, args ...string) (err error) {
	if *s != nil {
		(*s).Stop()
		*s = nil
	}
	*s, err = StartEngine(ctx, x.o.rouse, "", append([]string{"--name", "m", "--model", x.model, "--context", "8192", "--max-seqs", "4", "--worker", "process"}, args...)...)
	return err
}

// round has one conversation with both engines, whose answers must be equal.
func (x *talk) round(ctx context.Context, rng *rand.Rand, vocab int) error {
	if err := x.begin(ctx, &x.keeps, "--conversation-folder", x.folder, "--conversation-limit", "4GiB"); err != nil {
		return err
	}
	if err := x.begin(ctx, &x.drops, "--conversation-memory", "0"); err != nil {
		return err
	}
	turn := draw(rng, vocab, x.o.tokens+more)
	said := turn[:x.o.tokens]
	var answer string
	step := func(what string, s *Engine, tokens []int) error {
		p, err := s.stream(ctx, tokens, 8, "", nil)
		if err == nil && !p.whole {
			err = errors.New("the stream is cut")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		x.took[what] = append(x.took[what], report.Millis(p.at[0].Sub(p.began)))
		if len(tokens) < len(turn) {
			return nil
		}
		if answer = cmp.Or(answer, p.text); p.text != answer {
			return fmt.Errorf("%s: the answer is %q, it was %q", what, p.text, answer)
		}
		return nil
	}
	nap := func(s *Engine, level int, sleep, wake string) error {
		began := time.Now()
		if err := s.Post(ctx, fmt.Sprintf("/sleep?level=%d", level), nil); err != nil {
			return err
		}
		x.took[sleep] = append(x.took[sleep], report.Millis(time.Since(began)))
		began = time.Now()
		err := s.Post(ctx, "/wake_up", nil)
		x.took[wake] = append(x.took[wake], report.Millis(time.Since(began)))
		return err
	}
	once := func() error { // all but the last 16 tokens is cached
		if err := step("never", x.keeps, turn); err != nil {
			return err
		}
		if err := nap(x.keeps, 1, "sleep 1", "wake"); err != nil {
			return err
		}
		return step("level 1", x.keeps, turn)
	}
	for _, do := range []func() error{
		func() error { return digest(ctx, x.folder) },
		func() error { return step("first", x.keeps, said) },
		once, once, once, once, once, once, once, once, once, once, once, once,
		func() error { return nap(x.keeps, 2, "sleep 2", "wake 2") },
		func() error { return step("level 2", x.keeps, turn) },
		func() error {
			return x.begin(ctx, &x.keeps, "--conversation-folder", x.folder, "--conversation-limit", "4GiB")
		},
		func() error { return step("anew", x.keeps, turn) },
		func() error { return step("first", x.drops, said) },
		func() error { return nap(x.drops, 1, "sleep without", "wake without") },
		func() error { return step("without", x.drops, turn) },
		func() error { return x.begin(ctx, &x.drops, "--conversation-memory", "0") },
		func() error { return step("anew without", x.drops, turn) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
