package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/pico"

	"github.com/rouse-dev/rouse/internal/ggufname"
)

// Place is where a worker runs.
type Place string

const (
	CPU  = "cpu"
	CUDA = "cuda"
)

const (
	Anywhere Place = ""        // inside for a small unsharded model, else apart
	Inside   Place = "inside"  // in this process: starts faster, dies with the engine
	Apart    Place = "process" // in a process that can be killed and replaced
)

// Loading a small file takes no longer than starting a process.
const small = 64 << 20

// Options configure a worker.
type Options struct {
	Place Place
	// Device is CPU, the default, or CUDA. Python is CUDA's interpreter; "": python3.
	Device string
	Python string
	// Shards is the number of processes that share one model; 0: 1.
	Shards int
	Load   Load
	// Log also gets the worker's output; it may be nil.
	Log *slog.Logger
}

// Validate returns an error for invalid options.
func (o Options) Validate() error {
	if o.Place != Anywhere && o.Place != Inside && o.Place != Apart {
		return fmt.Errorf("worker %q: want %q, %q, or nothing", o.Place, Inside, Apart)
	}
	if o.Device != "" && o.Device != CPU && o.Device != CUDA {
		return fmt.Errorf("device %q: want %q or %q", o.Device, CPU, CUDA)
	}
	if o.Device == CUDA && o.Place == Inside {
		return fmt.Errorf("the device %q has workers in processes: leave the worker's place as it is", CUDA)
	}
	if o.Load.Projector != "" && (o.Device == CUDA || o.Shards > 1) {
		return errors.New("images are read by one worker on the processor: leave out --mmproj, or --device and --shards")
	}
	if o.Shards < 0 || o.Shards > 1 && o.Place == Inside {
		return fmt.Errorf("%d shards of a worker %q: want 1, or more of them in processes", o.Shards, o.Place)
	}
	if most := cpu.SharedLogits / 2; o.Shards > 1 && o.Device != CUDA && o.Load.Sequences > most {
		return fmt.Errorf("%d sequences at once: %d shards compute at most %d, ask for less of one of them", o.Load.Sequences, o.Shards, most)
	}
	return nil
}

// Open needs valid options. Nothing runs before Start.
func Open(o Options) *Supervisor {
	cfg := Config{Load: o.Load, Log: o.Log}
	if o.inside() {
		cfg.Launch = InProcess(Build(o.Log))
		return New(cfg)
	}
	cfg.Launch, cfg.Heartbeat, cfg.Discard = o.launch(Process{Log: o.Log}), time.Second, true
	if o.Device == CUDA {
		cfg.Load.Device, cfg.Discard = CUDA, false // a new interpreter takes seconds
		cfg.Adapter = plainAdapter
		path, err := cudaModel(o.Load.Model)
		cfg.Load.Model = path
		cfg.Launch = func(ctx context.Context) (Running, error) {
			if err != nil {
				return nil, err
			}
			return o.launchCUDA(ctx)
		}
	}
	if o.Shards > 1 && cfg.Load.Threads == 0 { // the ranks share the CPUs
		cfg.Load.Threads = max(1, (runtime.NumCPU()-1)/o.Shards)
	}
	return New(cfg)
}

func (o Options) launch(p Process) Launch {
	if o.Shards > 1 {
		return Group(o.Shards, p)
	}
	return p.Launch
}

func (o Options) launchCUDA(ctx context.Context) (Running, error) {
	command, err := cudaCommand(o.Python)
	if err != nil {
		return nil, err
	}
	return o.launch(Process{Command: command, Log: o.Log})(ctx)
}

func (o Options) inside() bool {
	if o.Place != Anywhere {
		return o.Place == Inside
	}
	if o.Shards > 1 || o.Device == CUDA {
		return false
	}
	if o.Load.Model == pico.Name {
		return true
	}
	size, err := ggufname.Size(o.Load.Model)
	return err != nil || size <= small
}
