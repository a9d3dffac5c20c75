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

// Devices.
const (
	CPU  = "cpu"
	CUDA = "cuda"
)

// Places.
const (
	Anywhere Place = ""        // inside for a small unsharded model, else in a process
	Inside   Place = "inside"  // in this process: it starts faster, and dies with the engine
	Apart    Place = "process" // in its own process, which can be killed and replaced
)

// small is the model file size up to which the worker runs inside: loading it is as fast as starting a process, and
// ending one would free little memory.
const small = 64 << 20

// Options configure a worker.
type Options struct {
	Place Place
	// Device is "cpu", the default, or "cuda". Python is the interpreter for "cuda"; "": python3.
	Device string
	Python string
	// Shards is the number of processes that share one model; 0 means 1.
	Shards int
	// Load is the model to load.
	Load Load
	// Depth is the most batches sent ahead of their outputs; default 2.
	Depth int
	// StepLimit is the longest time that a step may take; default 15 minutes.
	StepLimit time.Duration
	// Log gets worker starts and ends, and their output; nil discards it.
	Log *slog.Logger
}

// Validate returns an error if the options are invalid.
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

// Open returns a supervisor for a worker. The options must be valid. Nothing runs before Start.
func Open(o Options) *Supervisor {
	cfg := Config{Load: o.Load, Depth: o.Depth, StepLimit: o.StepLimit, Log: o.Log}
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

// launch starts one process per shard.
func (o Options) launch(p Process) Launch {
	if o.Shards > 1 {
		return Group(o.Shards, p)
	}
	return p.Launch
}

// launchCUDA starts one Python worker per shard.
func (o Options) launchCUDA(ctx context.Context) (Running, error) {
	command, err := cudaCommand(o.Python)
	if err != nil {
		return nil, err
	}
	return o.launch(Process{Command: command, Log: o.Log})(ctx)
}

// inside resolves Anywhere. If the file can't be accessed, the worker reports it.
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
