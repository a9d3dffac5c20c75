package functions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/requester"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// errRole ends an instance that began to run a model before it learned that its pod only claims GPUs. The next process learns that
// first.
var errRole = errors.New("the control plane says that this pod claims GPUs for another and runs no model itself")

// claiming is an instance whose pod claims GPUs for another one.
type claiming struct {
	cfg    Config
	stub   *requester.Requester
	events *cloudevent.Sender
	seq    atomic.Uint64
}

// claim runs the instance as a requester until its claim may go.
func (e *entry) claim(ctx context.Context, cfg Config, door serving) error {
	events, err := sender(cfg, e.agent)
	if err != nil {
		return err
	}
	c := &claiming{cfg: cfg, events: events}
	c.seq.Store(uint64(time.Now().UnixMicro()))
	c.stub = requester.New(requester.Config{Devices: cfg.Devices, Authorize: cfg.authorize, Output: cfg.Output, Logger: cfg.Logger,
		Changed: func(bool) { c.report() }})
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = events.Run(sending) // fails only when sending ends
	}()
	e.open(c, c.report, func(control.RegisterAnswer) {})
	c.report()
	cfg.Logger.Info("this pod claims GPUs and runs no model", "devices", cfg.Devices)
	kill, cancel := context.WithCancel(context.WithoutCancel(ctx)) // called on a kill, or when nobody can release the claim any more
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		select {
		case failed := <-door.served:
			err = fmt.Errorf("serve: %w", failed)
			door.served <- failed
		case <-cfg.Kill:
		case <-kill.Done():
		}
	}()
	c.stub.Run(ctx, kill.Done())
	cancel()
	<-watched
	door.shutdown()
	<-door.served //nolint:errcheck // the server was told to end
	end()
	<-sent
	return err
}

// status returns the claim's status: awake while a provider serves under it.
func (c *claiming) status() api.InstanceStatus {
	s := api.InstanceStatus{
		Instance: c.cfg.Instance, Function: c.cfg.Function.Name, State: api.Asleep, Endpoint: c.cfg.Endpoint, Devices: c.cfg.Devices,
		Epoch: c.cfg.Epoch, Seq: c.seq.Add(1), Since: time.Now(),
	}
	if c.stub.Ready() {
		s.State = api.Awake
	}
	return s
}

func (c *claiming) report() { c.events.Emit(stateEvent(c.status())) }

// ServeHTTP answers the control plane's state path; the requester answers all others.
func (c *claiming) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != control.PathState {
		c.stub.ServeHTTP(w, r)
		return
	}
	if err := c.cfg.authorize(r); err != nil {
		api.WriteError(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, c.status())
}
