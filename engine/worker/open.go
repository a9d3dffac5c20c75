package worker

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/wire"
)

// Place says where a worker runs.
type Place string

// Places.
const (
	Anywhere Place = ""        // inside for a small model that is not sharded, else in a process
	Inside   Place = "inside"  // in this process: it starts faster, and dies with the engine
	Apart    Place = "process" // in a process of its own, which can be killed and replaced
)

// small is the size of a model file up to which its worker runs inside: loading it takes no longer than
// starting a process does, and there is little memory to win by ending one.
const small = 64 << 20

// Options say which worker to open.
type Options struct {
	Place Place
	// Shards is the number of processes that share one model; 0 and 1: one.
	Shards int
	// Load is what is loaded.
	Load wire.Load
	// Depth is how many batches are sent ahead; default 2.
	Depth int
	// StepLimit is the longest time that a step may take; default five minutes.
	StepLimit time.Duration
	// Log gets what becomes of the workers, and what they say; nil discards it.
	Log *slog.Logger
}

// Validate reports what can't be meant.
func (o Options) Validate() error {
	if o.Place != Anywhere && o.Place != Inside && o.Place != Apart {
		return fmt.Errorf("worker %q: want %q, %q, or nothing", o.Place, Inside, Apart)
	}
	if o.Shards < 0 || o.Shards > 1 && o.Place == Inside {
		return fmt.Errorf("%d shards of a worker %q: want 1, or more of them in processes", o.Shards, o.Place)
	}
	return nil
}

// Open makes a supervisor of the worker that the options describe. They must be valid. Nothing runs before Start.
func Open(o Options) *Supervisor {
	cfg := Config{Load: o.Load, Depth: o.Depth, StepLimit: o.StepLimit, Log: o.Log}
	if o.inside() {
		cfg.Launch = InProcess(Build(o.Log))
		return New(cfg)
	}
	cfg.Launch, cfg.Heartbeat, cfg.Discard = Process{Log: o.Log}.Launch, time.Second, true
	if o.Shards > 1 {
		if cfg.Load.Threads == 0 { // the ranks share the processors
			cfg.Load.Threads = max(1, (runtime.NumCPU()-1)/o.Shards)
		}
		cfg.Launch = Group(o.Shards, Process{Log: o.Log})
	}
	return New(cfg)
}

// inside decides about Anywhere. A file that can't be looked at is the worker's to complain about.
func (o Options) inside() bool {
	if o.Place != Anywhere {
		return o.Place == Inside
	}
	if o.Shards > 1 {
		return false
	}
	if o.Load.Model == pico.Name {
		return true
	}
	info, err := os.Stat(o.Load.Model)
	return err != nil || info.Size() <= small
}
