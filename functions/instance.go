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

// Instance is an instance that runs in this process: the one that [Run] serves over HTTP, as a Go value. Its methods are safe for many
// goroutines. They include those of [control.Client].
type Instance struct {
	// End starts to end the instance and returns at once: requests finish within the configured drain, then the runtime ends.
	End func()
	// Kill ends the runtime without a drain and returns at once.
	Kill func()

	function *function
	exited   chan struct{} // closed at the end
	err      error         // how it ended; written before exited is closed
}

// Start starts an instance in this process and returns at once. Requests come by [Instance.RoundTrip], and at cfg.Listen if that is set;
// cfg.Emit receives events. parent is a shim for its runtime, which Start takes over; nil: cfg.Keep says how to start one. The error
// says why the instance can't run.
func Start(cfg Config, parent *shim.Client) (*Instance, error) {
	err := cfg.Validate()
	var listener net.Listener
	switch {
	case err != nil:
	case cfg.Join != nil || cfg.Workers != "":
		err = fmt.Errorf("function %s: an instance of a cluster, or one that shares its runtime, is a process: Run runs it", cfg.Function.Name)
	case cfg.Listen != "":
		if listener, cfg.Listen, err = listen(cfg.Listen); err != nil {
			err = fmt.Errorf("function %s: %w", cfg.Function.Name, err)
		}
	}
	if err != nil {
		if parent != nil {
			parent.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	kill := make(chan struct{})
	cfg.Kill = kill
	f, run, err := begin(ctx, cfg, listener, parent)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("function %s: %w", cfg.Function.Name, err)
	}
	i := &Instance{End: cancel, Kill: sync.OnceFunc(func() { close(kill) }), function: f, exited: make(chan struct{})}
	go func() {
		defer close(i.exited)
		defer cancel()
		i.err = run(ctx)
	}()
	return i, nil
}

// begin creates an instance that does not share its runtime. run runs it until it has ended. begin takes listener and parent over; both
// may be nil.
func begin(ctx context.Context, cfg Config, listener net.Listener, parent *shim.Client) (f *function, run func(context.Context) error, err error) {
	clean, err := prepare(&cfg)
	release := func() {
		if parent != nil {
			parent.Close()
		}
		clean()
	}
	log := process.NewLog(logLines, cfg.Output)
	if err == nil && parent == nil {
		parent, err = keep(ctx, cfg, log)
	}
	if err == nil {
		f, err = assemble(cfg, log, parent, nil)
	}
	if err != nil {
		release()
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
		return nil, nil, err
	}
	return f, func(ctx context.Context) error {
		defer release()
		return f.run(ctx, serve(cfg, listener, f))
	}, nil
}

// Exited returns a channel that is closed once nothing of the instance is left.
func (i *Instance) Exited() <-chan struct{} { return i.exited }

// Err returns why the instance has ended, or nil if it was told to. It is valid once [Instance.Exited] is closed.
func (i *Instance) Err() error { return i.err }

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

// RoundTrip implements [http.RoundTripper]. One goroutine must read the answer's body.
func (i *Instance) RoundTrip(r *http.Request) (*http.Response, error) {
	return roundTrip(i.function, r, i.function.cfg.Logger)
}
