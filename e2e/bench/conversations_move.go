package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// made is how many tokens a stream has when it is moved.
const made = 24

// moves measures the pause of a stream whose engine gives way or is killed while another continues it. The pause is the
// time between the last event of the one and the first of the other, less the usual time between two events.
func (s talkModel) moves(ctx context.Context, o talkOptions, add func(...report.Measurement)) error {
	path, err := s.model(o)
	if err != nil {
		return err
	}
	took := talkSeries{}
	for _, way := range []struct {
		name       string
		keep, kill bool
	}{{"handed over", true, false}, {"computed again", false, false}, {"killed", false, true}} {
		if err := s.move(ctx, o, path, way.name, way.keep, way.kill, took); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	of := func(what string) string { return fmt.Sprintf("%s, %s", what, s.name) }
	after := fmt.Sprintf("what the pause of a stream is longer than between two of its tokens, in a conversation of %d tokens", o.tokens)
	again := took["computed again"]
	m := report.Compare(report.Measurement{Name: of("planned move, one folder"), What: after + ", whose engine gives way to one with the same folder", Unit: "ms", Against: "without a folder"},
		took["handed over"], again)
	if s.spec.Dim >= 896 { // the gate is for a model of half a billion parameters
		m = m.Gated(m.Rouse.P50 <= 50, "at most 50 ms")
	}
	add(m)
	add(report.Measurement{Name: of("planned move, no folder"), What: after + ", whose engine gives way to one that computes it again", Unit: "ms", N: len(again), Rouse: report.Summarise(again)})
	add(report.Compare(report.Measurement{Name: of("kill -9"), What: after + ", whose engine is killed; another one, awake, computes it again", Unit: "ms", Against: "a planned move, no folder"},
		took["killed"], again))
	add(report.Measurement{Name: of("a token"), What: "the usual time between two events of such a stream", Unit: "ms", N: len(took["token"]), Rouse: report.Summarise(took["token"])})
	return nil
}

// move moves streams in one way.
func (s talkModel) move(ctx context.Context, o talkOptions, model, name string, keep, kill bool, took talkSeries) error {
	folder, err := os.MkdirTemp("", "moves")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	x := &talk{o: o, model: model, folder: folder, took: took, length: report.Sized(o.small, s.length, 4000)}
	defer x.end()
	args := []string{"--conversation-memory", "0"}
	if keep {
		args = append(args, "--conversation-folder", folder, "--conversation-limit", "4GiB")
	}
	for rep := range o.reps {
		if x.keeps == nil || kill {
			if err := x.begin(ctx, &x.keeps, args...); err != nil {
				return err
			}
		}
		if err := x.begin(ctx, &x.drops, args...); err != nil { // it has nothing in memory
			return err
		}
		if keep {
			if err := x.keeps.digest(ctx, folder); err != nil {
				return err
			}
		}
		rng, prompt := rand.New(rand.NewPCG(2, uint64(rep))), []int(nil)
		for range o.tokens {
			prompt = append(prompt, 300+rng.IntN(min(s.spec.Vocab, 1000)-300))
		}
		if err := x.moveOne(ctx, name, prompt, kill); err != nil {
			return err
		}
	}
	return nil
}

// moveOne moves one stream from one engine to the other, and compares its text with the text of a stream that stays.
func (x *talk) moveOne(ctx context.Context, name string, prompt []int, kill bool) error {
	gaveWay := make(chan error, 1) // one answer
	before, err := x.keeps.stream(ctx, prompt, x.length, "new", func(n int) {
		if n != made {
			return
		}
		go func() {
			if kill {
				gaveWay <- x.keeps.Kill()
				return
			}
			gaveWay <- x.keeps.Post(ctx, "/sleep?level=1&mode=move", nil)
		}()
	})
	if err == nil && before.whole {
		err = errors.New("the stream ended before it was moved")
	}
	if err != nil {
		return err
	}
	behind, err := x.drops.stream(ctx, prompt, x.length, strings.Join(before.pieces, ";"), func(int) {})
	if err != nil {
		return err
	}
	if err := <-gaveWay; err != nil {
		return err
	}
	stays, err := x.drops.stream(ctx, prompt, x.length, "", func(int) {})
	if err != nil {
		return err
	}
	if got := before.text + behind.text; got != stays.text || !behind.whole || !stays.whole {
		return fmt.Errorf("the moved stream is %q, the one that stayed %q", got, stays.text)
	}
	var usual []float64
	for i := 1; i < len(before.at); i++ {
		usual = append(usual, report.Millis(before.at[i].Sub(before.at[i-1])))
	}
	token := report.Summarise(usual).P50
	x.took["token"] = append(x.took["token"], token)
	x.took[name] = append(x.took[name], report.Millis(behind.at[0].Sub(before.at[len(before.at)-1]))-token)
	if kill {
		x.keeps.Stop()
		x.keeps = nil
		return nil
	}
	return x.keeps.Post(ctx, "/wake_up", nil)
}

// part is the part of a stream that one engine sends.
type part struct {
	text   string
	at     []time.Time // of its events
	pieces []string    // of its state
	whole  bool
}

// stream reads a greedy stream until it ends or is cut, and calls seen with the number of each event.
func (s *Engine) stream(ctx context.Context, tokens []int, length int, state string, seen func(n int)) (p part, err error) {
	header := http.Header{}
	if state != "" {
		header.Set("X-Rouse-Stream-State", state)
	}
	piece := ""
	err = s.lines(ctx, header, map[string]any{
		"model": "m", "prompt": tokens, "max_tokens": length, "temperature": 0, "ignore_eos": true, "stream": true, "logprobs": 0, // each token is an event
	}, func(comment string) {
		if text, ok := strings.CutPrefix(comment, ": rouse-state "); ok {
			piece = text
		}
	}, func(at time.Time, text string, done bool) {
		if done {
			p.whole = true
			return
		}
		p.at = append(p.at, at)
		if piece != "" {
			p.pieces = append(p.pieces, piece)
		}
		piece = ""
		p.text += text
		seen(len(p.at))
	})
	if err != nil && len(p.at) > 0 && !errors.Is(err, errChunk) {
		return p, nil //nolint:nilerror // its end, as a cut has it
	}
	return p, err
}
