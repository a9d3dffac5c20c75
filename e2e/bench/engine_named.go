package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/engine/bench"
)

// Streams of a server at once, and the tokens of each.
const namedStreams, streamTokens = 4, 64

// figures are those of one of the two servers.
type figures struct {
	cold, rate, memory []float64
	naps
}

// named compares whole servers on a model with a name: Rouse's engine and llama-server, which take turns.
func named(ctx context.Context, o engineOptions, add func(...report.Measurement)) error {
	cfg := bench.Config{Path: o.named, Prompt: 256, Gen: 48, Reps: o.reps, Peer: o.peer, NoAsync: true}
	if o.small {
		var err error
		if cfg.Path, err = subjects()[0].model(o); err != nil {
			return err
		}
		cfg.Prompt, cfg.Gen, o.named = 8, 4, cfg.Path
	}
	rep, err := bench.Run(ctx, cfg, nil)
	if err != nil {
		return err
	}
	if rep.PeerNote != "" {
		return fmt.Errorf("there is nothing to compare with: %s", rep.PeerNote)
	}
	passes(rep, "", func(_ string, m report.Measurement) { add(m) }, add)
	o.threads = rep.Threads
	var ours, theirs figures
	for range o.reps {
		for _, of := range []*figures{&ours, &theirs} {
			s, took, err := o.startNamed(ctx, of == &theirs, true)
			if err != nil {
				return err
			}
			err = of.measure(ctx, s, of == &ours)
			s.Stop()
			if err != nil {
				return err
			}
			of.cold = append(of.cold, took)
		}
		s, took, err := o.startNamed(ctx, true, false) // llama-server has no sleep: it is started again, with the file in the page cache
		if err != nil {
			return err
		}
		s.Stop()
		theirs.wake = append(theirs.wake, took)
	}
	what := fmt.Sprintf("%s, %d threads; whole servers over TCP on loopback", filepath.Base(o.named), o.threads)
	pair := func(name, note, unit string, ours, theirs []float64) {
		add(report.Compare(report.Measurement{Name: name, What: what + ": " + note, Unit: unit, Against: "llama-server"}, ours, theirs))
	}
	pair(fmt.Sprintf("%d streams at once", namedStreams), fmt.Sprintf("tokens of %d streams of %d tokens each, in all", namedStreams, streamTokens), "tokens/s", ours.rate, theirs.rate)
	pair("start to first token, cold file", "from the exec to the first token, with nothing of the file in the page cache", "ms", ours.cold, theirs.cold)
	pair("memory", "resident memory after the streams, mapped files included", "MB", ours.memory, theirs.memory)
	pair("back from rest", "a wake from level 1, to the first step; llama-server has no sleep, and is started from the exec to the first token with its file in the page cache", "ms", ours.wake, theirs.wake)
	add(report.Of(report.Measurement{Name: "memory asleep", What: what + ": resident memory at level 1", Unit: "MB"}, ours.asleep...))
	return nil
}

// measure measures a server that has started.
func (f *figures) measure(ctx context.Context, s *Engine, naps bool) error {
	rate, err := s.streamRate(ctx)
	if err != nil {
		return err
	}
	rss, err := s.Resident()
	if err != nil {
		return err
	}
	f.rate, f.memory = append(f.rate, rate), append(f.memory, rss)
	if naps {
		return f.nap(ctx, s, 1)
	}
	return nil
}

// startNamed starts one of the two servers, and has it make one token; took is the milliseconds from its exec to that.
func (o engineOptions) startNamed(ctx context.Context, peer, cold bool) (s *Engine, took float64, err error) {
	if cold {
		if err := forget(ctx, o.named); err != nil {
			return nil, 0, err
		}
	}
	threads := strconv.Itoa(o.threads)
	if !peer {
		s, err = o.start(ctx, o.named, "--context", "2048", "--max-seqs", strconv.Itoa(namedStreams), "--threads", threads)
	} else {
		var p *Process
		var line string
		cmd := exec.CommandContext(ctx, filepath.Join(o.peer, "llama-server"), "-m", o.named, "-c", strconv.Itoa(2048*namedStreams), "-np", strconv.Itoa(namedStreams), "-t", threads, "--host", "127.0.0.1", "--port", "0")
		if p, line, err = Start(cmd, "listening on http"); err == nil {
			s = &Engine{p, NewClient(Listening(line))}
		}
	}
	if err != nil {
		return nil, 0, err
	}
	if err := s.token(ctx); err != nil {
		s.Stop()
		return nil, 0, err
	}
	return s, report.Millis(time.Since(s.Began)), nil
}

// forget drops a file from the page cache, by GNU's dd.
func forget(ctx context.Context, path string) error {
	if out, err := exec.CommandContext(ctx, "dd", "if="+path, "iflag=nocache", "count=0", "status=none").CombinedOutput(); err != nil {
		return fmt.Errorf("drop %s from the page cache: %w: %s", path, err, out)
	}
	return nil
}

// streamRate reads some streams at once, and returns the tokens a second of all.
func (s *Engine) streamRate(ctx context.Context) (rate float64, err error) {
	began := time.Now()
	_, err = AtOnce(namedStreams, func(i int) (time.Duration, error) {
		made := 0
		_, err := s.First(ctx, pathText, map[string]any{
			"prompt": fmt.Sprintf("Chapter %d. The", i+1), "max_tokens": streamTokens, "temperature": 0, "ignore_eos": true, "stream": true, "stream_options": map[string]any{"include_usage": true},
		}, func(data string) {
			var event struct {
				Usage struct {
					Made int `json:"completion_tokens"`
				}
			}
			if json.Unmarshal([]byte(data), &event) == nil && event.Usage.Made > 0 {
				made = event.Usage.Made
			}
		})
		if err == nil && made != streamTokens {
			err = fmt.Errorf("a stream has %d tokens, want %d", made, streamTokens)
		}
		return 0, err
	})
	return namedStreams * streamTokens / time.Since(began).Seconds(), err
}
