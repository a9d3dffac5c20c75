package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// Load is N requests at once of Prompt random tokens and Gen further ones.
type Load struct {
	N, Prompt, Gen int
	// HostWork is added for each step.
	HostWork time.Duration
	Sync     bool
}

// Speed is an engine's throughput.
type Speed struct {
	Tokens  int
	Elapsed time.Duration // from the first token to the last one
	Steps   uint64
	Busy    time.Duration // of the device
}

// PerSecond is in tokens.
func (s Speed) PerSecond() float64 { return float64(s.Tokens) / s.Elapsed.Seconds() }

// runOn runs a load in a worker process. path has the vocabulary.
func runOn(ctx context.Context, path string, load worker.Load, l Load) (Speed, error) {
	f, _, err := open(path)
	if err != nil {
		return Speed{}, err
	}
	tok, err := tokenizer.FromGGUF(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Speed{}, err
	}
	load.Sequences = l.N
	w := worker.New(worker.Config{Launch: worker.Process{}.Launch, Load: load})
	info, err := w.Start(ctx)
	if err != nil {
		return Speed{}, err
	}
	e, err := engine.Over(w, info, tok, engine.Config{Seats: l.N, Budget: max(512, l.N), Sync: l.Sync, HostWork: l.HostWork})
	if err != nil {
		return Speed{}, errors.Join(err, w.Close())
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1) // of Run
	go func() { done <- e.Run(running) }()
	s, err := Drive(ctx, e, l)
	stop()
	return s, errors.Join(err, <-done)
}

// Drive sends the load to a running engine and waits for its end. It measures from when each sequence has its first
// token.
func Drive(ctx context.Context, e *engine.Engine, l Load) (Speed, error) {
	rng := rand.New(rand.NewPCG(3, 4))
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		started  int
		from, to time.Time
		tokens   int
		busy     engine.Stats
		failed   error
	)
	for range l.N {
		prompt := make([]int32, l.Prompt)
		for i := range prompt {
			prompt[i] = int32(rng.IntN(e.Tokenizer().Size()))
		}
		stream, err := e.Add(ctx, engine.Request{Prompt: prompt, MaxTokens: l.Gen, IgnoreEnd: true})
		if err != nil {
			return Speed{}, err
		}
		wg.Go(func() {
			first := true
			for {
				_, err := stream.Next()
				mu.Lock()
				switch {
				case errors.Is(err, io.EOF):
					mu.Unlock()
					return
				case err != nil:
					failed = err
					mu.Unlock()
					return
				case first:
					first = false
					if started++; started == l.N {
						from, busy = time.Now(), e.Stats()
					}
				case !from.IsZero():
					tokens++
					to = time.Now()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return Speed{}, failed
	}
	if tokens == 0 {
		return Speed{}, fmt.Errorf("%d requests of %d tokens are too few to measure", l.N, l.Gen)
	}
	end := e.Stats()
	return Speed{Tokens: tokens, Elapsed: to.Sub(from), Steps: end.Steps - busy.Steps, Busy: end.Busy - busy.Busy}, nil
}

// runEngine runs 32 requests on the model, and 64 on a simulated device with 10 ms a step and 2 ms of host work.
func runEngine(ctx context.Context, cfg Config, rep *Report, progress func(string)) error {
	options, err := json.Marshal(infer.SimulatedConfig{Step: 10 * time.Millisecond, Spin: true, Vocab: 1024, Context: 512})
	if err != nil {
		return err
	}
	tests := []struct {
		name, path string
		worker     worker.Load
		load       Load
	}{
		{"engine", cfg.Path, worker.Load{Model: cfg.Path, Threads: cfg.Threads, Context: 32 + cfg.Gen + 16}, Load{N: 32, Prompt: 32, Gen: cfg.Gen}},
		{"device", shipped, worker.Load{Device: "sim", Options: options}, Load{N: 64, Prompt: 16, Gen: 64, HostWork: 2 * time.Millisecond}},
	}
	figures := map[string][]float64{}
	for i := range cfg.Reps {
		progress(fmt.Sprintf("engine, %d of %d", i+1, cfg.Reps))
		for _, t := range tests {
			for _, way := range []string{"_async", "_sync"} {
				t.load.Sync = way == "_sync"
				s, err := runOn(ctx, t.path, t.worker, t.load)
				if err != nil {
					return fmt.Errorf("%s%s: %w", t.name, way, err)
				}
				figures[t.name+way] = append(figures[t.name+way], s.PerSecond())
				if !t.load.Sync {
					figures[t.name+"_idle"] = append(figures[t.name+"_idle"], max(0, 100*(1-float64(s.Busy)/float64(s.Elapsed))))
				}
			}
		}
	}
	for _, t := range tests {
		async, sync := figures[t.name+"_async"], figures[t.name+"_sync"]
		rep.addSeries(t.name+"_async", async, "tokens/s")
		rep.addSeries(t.name+"_sync", sync, "tokens/s")
		rep.add(strings.TrimPrefix(t.name+"_async_over_sync", "engine_"), median(async)/median(sync), "x")
	}
	rep.addSeries("device_idle", figures["device_idle"], "%")
	return nil
}
