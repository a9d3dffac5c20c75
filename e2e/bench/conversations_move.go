package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// made is how many tokens a stream has when it moves.
const made = 24

// moves measures the time between the last event of an engine that gives way or is killed and the first of the other,
// less the usual time between two.
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
	after := fmt.Sprintf("what the pause of a stream is longer than between two of its tokens, in a conversation of %d tokens", o.tokens)
	row := func(name, what string, series, beside []float64, against string) report.Measurement {
		m := report.Measurement{Name: name + ", " + s.name, What: what, Unit: "ms", Against: against}
		if against == "" {
			return report.Of(m, series...)
		}
		return report.Compare(m, series, beside)
	}
	again := took["computed again"]
	m := row("planned move, one folder", after+", whose engine gives way to one with the same folder", took["handed over"], again, "without a folder")
	if s.spec.Dim >= 896 { // the gate is for half a billion parameters
		m = m.Gated(m.Rouse.P50 <= 50, "at most 50 ms")
	}
	add(m, row("planned move, no folder", after+", whose engine gives way to one that computes it again", again, nil, ""),
		row("kill -9", after+", whose engine is killed; another one, awake, computes it again", took["killed"], again, "a planned move, no folder"),
		row("a token", "the usual time between two events of such a stream", took["token"], nil, ""))
	return nil
}

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
			if err := digest(ctx, folder); err != nil {
				return err
			}
		}
		prompt := draw(rand.New(rand.NewPCG(2, uint64(rep))), min(s.spec.Vocab, 1000), o.tokens)
		if err := x.moveOne(ctx, name, prompt, kill); err != nil {
			return err
		}
	}
	return nil
}

func (x *talk) moveOne(ctx context.Context, name string, prompt []int, kill bool) error {
	gaveWay := make(chan error, 1)
	before, err := x.keeps.stream(ctx, prompt, x.length, "new", func(n int) {
		if n != made {
			return
		}
		go func() {
			if kill {
				x.keeps.Kill()
				gaveWay <- nil
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
	behind, err := x.drops.stream(ctx, prompt, x.length, strings.Join(before.pieces, ";"), nil)
	if err != nil {
		return err
	}
	if err := <-gaveWay; err != nil {
		return err
	}
	stays, err := x.drops.stream(ctx, prompt, x.length, "", nil)
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
		return nil
	}
	return x.keeps.Post(ctx, "/wake_up", nil)
}

type part struct {
	text   string
	began  time.Time
	at     []time.Time // of its events
	pieces []string    // of its state
	whole  bool
}

var errChunk = errors.New("chunk")

// stream reads a greedy stream until it ends or is cut. seen, which may be nil, gets the number of each event.
func (s *Engine) stream(ctx context.Context, tokens []int, length int, state string, seen func(n int)) (p part, err error) {
	header := http.Header{}
	if state != "" {
		header.Set("X-Rouse-Stream-State", state)
	}
	piece := ""
	p.began = time.Now()
	err = s.Lines(ctx, pathText, header, map[string]any{
		"model": "m", "prompt": tokens, "max_tokens": length, "temperature": 0, "ignore_eos": true, "stream": true, "logprobs": 0, // each token is an event
	}, func(at time.Time, line string) error {
		data, event := strings.CutPrefix(line, "data: ")
		switch {
		case !event:
			if text, ok := strings.CutPrefix(line, ": rouse-state "); ok {
				piece = text
			}
			return nil
		case data == "[DONE]":
			p.whole = true
			return nil
		}
		var c struct {
			Choices []struct{ Text string }
			Error   json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil || c.Error != nil {
			return errors.Join(fmt.Errorf("%w %s", errChunk, data), err)
		}
		p.at = append(p.at, at)
		if piece != "" {
			p.pieces = append(p.pieces, piece)
		}
		piece = ""
		for _, choice := range c.Choices {
			p.text += choice.Text
		}
		if seen != nil {
			seen(len(p.at))
		}
		return nil
	})
	if err != nil && len(p.at) > 0 && !errors.Is(err, errChunk) {
		return p, nil // its end, as a cut has it
	}
	return p, err
}

// digest waits until the model's file was read once.
func digest(ctx context.Context, folder string) error {
	return await(ctx, 100*time.Millisecond, func() (bool, error) {
		found, err := filepath.Glob(filepath.Join(folder, "conversations", "*.digest"))
		return len(found) > 0, err
	})
}
