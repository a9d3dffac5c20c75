package functions

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/shim"
)

// Instance is an instance that runs in this process: what [Run] serves over HTTP, as a Go value. Its methods are safe for many
// goroutines, and those of the control plane are the ones of [control.Client].
type Instance struct {
	function *function
	cancel   context.CancelFunc
	kill     func()
	exited   chan struct{} // closed once nothing of the instance is left
	err      error         // how it ended; written before exited is closed
}

// Start starts an instance in this process and returns at once. Its requests come by [Instance.RoundTrip], and also at cfg.Listen where
// that is set. cfg.Emit gets its events. parent is a shim for its runtime, which it closes; nil: cfg.Keep says how one is started.
// The error says why it can't run; parent is closed then too.
func Start(cfg Config, parent *shim.Client) (*Instance, error) {
	i, err := start(cfg, parent)
	if err != nil {
		if parent != nil {
			parent.Close()
		}
		return nil, fmt.Errorf("function %s: %w", cfg.Function.Name, err)
	}
	return i, nil
}

func start(cfg Config, parent *shim.Client) (*Instance, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Join != nil || cfg.Workers != "" {
		return nil, errors.New("an instance of a cluster, or one that shares its runtime, is a process: Run runs it")
	}
	var listener net.Listener
	if cfg.Listen != "" {
		var err error
		if listener, cfg.Listen, err = listen(cfg.Listen); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	kill := make(chan struct{})
	cfg.Kill = kill
	i := &Instance{cancel: cancel, kill: sync.OnceFunc(func() { close(kill) }), exited: make(chan struct{})}
	f, run, err := begin(ctx, cfg, listener, parent)
	if err != nil {
		cancel()
		return nil, err
	}
	i.function = f
	go func() {
		defer close(i.exited)
		defer cancel()
		i.err = run(ctx)
	}()
	return i, nil
}

// begin makes an instance that shares its runtime with nobody, and returns what runs it until it has ended. It takes listener over, which may be nil.
func begin(ctx context.Context, cfg Config, listener net.Listener, parent *shim.Client) (*function, func(context.Context) error, error) {
	undo := func(err error) (*function, func(context.Context) error, error) {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
		return nil, nil, err
	}
	clean, err := prepare(&cfg)
	if err != nil {
		return undo(err)
	}
	log := process.NewLog(logLines, cfg.Output)
	if parent == nil {
		if parent, err = keep(ctx, cfg, log); err != nil {
			clean()
			return undo(err)
		}
	}
	f, err := assemble(cfg, log, parent, nil)
	if err != nil {
		if parent != nil {
			parent.Close()
		}
		clean()
		return undo(err)
	}
	return f, func(ctx context.Context) error {
		defer clean()
		if parent != nil {
			defer parent.Close()
		}
		return f.run(ctx, serve(cfg, listener, f))
	}, nil
}

// Exited is closed once nothing of the instance is left.
func (i *Instance) Exited() <-chan struct{} { return i.exited }

// Err says, once [Instance.Exited] is closed, why the instance has ended; nil: it was told to.
func (i *Instance) Err() error { return i.err }

// End lets requests finish for the drain of the configuration, ends the runtime and returns at once.
func (i *Instance) End() { i.cancel() }

// Kill ends the runtime without a drain and returns at once.
func (i *Instance) Kill() { i.kill() }

// State returns the instance's status.
func (i *Instance) State() api.InstanceStatus { return i.function.supervisor.Status() }

// Wake is [control.Client.Wake].
func (i *Instance) Wake(ctx context.Context, g api.Grant) (api.InstanceStatus, error) {
	return i.function.wake(ctx, g)
}

// Sleep is [control.Client.Sleep].
func (i *Instance) Sleep(ctx context.Context, r control.SleepRequest) (api.InstanceStatus, error) {
	return i.function.supervisor.Sleep(ctx, r)
}

// Fence is [control.Client.Fence].
func (i *Instance) Fence(ctx context.Context, r control.FenceRequest) (api.InstanceStatus, error) {
	return i.function.supervisor.Fence(ctx, r)
}

// Stop is [control.Client.Stop].
func (i *Instance) Stop(ctx context.Context, r control.StopRequest) (api.InstanceStatus, error) {
	return i.function.supervisor.Stop(ctx, r)
}

// Adapters is [control.Client.Adapters].
func (i *Instance) Adapters(ctx context.Context, r control.AdaptersRequest) (api.InstanceStatus, error) {
	return i.function.declare(ctx, r)
}

// RoundTrip has the instance answer a request, as [http.RoundTripper] says. The answer's body must be read by one goroutine.
func (i *Instance) RoundTrip(r *http.Request) (*http.Response, error) {
	return roundTrip(i.function, r, i.function.cfg.Logger)
}
