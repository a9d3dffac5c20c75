package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/sim"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// Load is the workload of a benchmark: N requests at once, of Prompt random tokens and Gen further ones each.
type Load struct {
	N, Prompt, Gen int
	// HostWork is added to the host's work for each step.
	HostWork time.Duration
	Sync     bool
}

// Speed is the throughput of an engine.
type Speed struct {
	Tokens  int
	Elapsed time.Duration // from the first token to the last one
	Steps   uint64
	Busy    time.Duration // of the device, in those steps
}

// PerSecond returns tokens per second.
func (s Speed) PerSecond() float64 { return float64(s.Tokens) / s.Elapsed.Seconds() }

// Engine runs a load on a model whose worker is a process of its own.
func Engine(ctx context.Context, cfg Config, load worker.Load, l Load) (Speed, error) {
	tok, err := vocabulary(cfg.Path)
	if err != nil {
		return Speed{}, err
	}
	load.Sequences = l.N
	w := worker.New(worker.Config{Launch: worker.Process{Command: cfg.Worker}.Launch, Load: load})
	info, err := w.Start(ctx)
	if err != nil {
		return Speed{}, err
	}
	e, err := engine.Over(w, info, tok, engine.Config{Seats: l.N, Budget: max(512, l.N), Sync: l.Sync, HostWork: l.HostWork})
	if err != nil {
		return Speed{}, errors.Join(err, w.Close())
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1) // Run sends its end
	go func() { done <- e.Run(running) }()
	s, err := Drive(ctx, e, l)
	stop()
	return s, errors.Join(err, <-done)
}

// Drive sends the load to a running engine, and waits for its end. It measures the time in which all sequences decode,
// from the moment when each has its first token.
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

// vocabulary reads the tokenizer of a model file, or pico's if the file has none.
func vocabulary(path string) (*tokenizer.Tokenizer, error) {
	if path == shipped || path == "" {
		f, err := gguf.Parse(pico.GGUF())
		if err != nil {
			return nil, err
		}
		return tokenizer.FromGGUF(f)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return tokenizer.FromGGUF(f)
}

// Device is the load of the simulated device: 10 ms a step, and 2 ms of host work beside or after it.
var Device = struct {
	Step time.Duration
	Load Load
}{10 * time.Millisecond, Load{N: 64, Prompt: 16, Gen: 64, HostWork: 2 * time.Millisecond}}

// Simulated runs the load of [Device].
func Simulated(ctx context.Context, cfg Config, sync bool) (Speed, error) {
	options, err := json.Marshal(sim.Config{Step: Device.Step, Spin: true, Vocab: 1024, Context: 512})
	if err != nil {
		return Speed{}, err
	}
	l := Device.Load
	l.Sync = sync
	cfg.Path = ""
	return Engine(ctx, cfg, worker.Load{Device: "sim", Options: options}, l)
}

// requests is the number of requests at once in the engine's test.
const requests = 32

// whole runs 32 requests on the model, as a server does.
func whole(ctx context.Context, cfg Config, sync bool) (Speed, error) {
	cfg = cfg.withDefaults()
	l := Load{N: requests, Prompt: 32, Gen: cfg.Gen, Sync: sync}
	return Engine(ctx, cfg, worker.Load{Model: cfg.Path, Threads: cfg.Threads, Context: 32 + cfg.Gen + 16}, l)
}

func runEngine(ctx context.Context, cfg Config, rep *Report, progress func(string)) error {
	figures := map[string][]float64{}
	for i := range cfg.Reps {
		progress(fmt.Sprintf("engine, %d of %d", i+1, cfg.Reps))
		for _, test := range []struct {
			name string
			run  func(context.Context, Config, bool) (Speed, error)
			sync bool
		}{{"engine_async", whole, false}, {"engine_sync", whole, true}, {"device_async", Simulated, false}, {"device_sync", Simulated, true}} {
			s, err := test.run(ctx, cfg, test.sync)
			if err != nil {
				return fmt.Errorf("%s: %w", test.name, err)
			}
			figures[test.name] = append(figures[test.name], s.PerSecond())
			if test.name == "device_async" {
				idle := 100 * (1 - float64(s.Busy)/float64(s.Elapsed))
				figures["device_idle"] = append(figures["device_idle"], max(0, idle))
			}
		}
	}
	rep.addSeries("engine_async", figures["engine_async"], "tokens/s")
	rep.addSeries("engine_sync", figures["engine_sync"], "tokens/s")
	rep.add("async_over_sync", median(figures["engine_async"])/median(figures["engine_sync"]), "x")
	rep.addSeries("device_async", figures["device_async"], "tokens/s")
	rep.addSeries("device_sync", figures["device_sync"], "tokens/s")
	rep.add("device_async_over_sync", median(figures["device_async"])/median(figures["device_sync"]), "x")
	rep.addSeries("device_idle", figures["device_idle"], "%")
	return nil
}
