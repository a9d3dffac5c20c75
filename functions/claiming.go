package functions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

var errRole = errors.New("the control plane says that this pod claims GPUs for another and runs no model itself")

// standIn is an instance without a runtime, which only reports a status.
type standIn struct {
	cfg    Config
	since  time.Time
	seq    atomic.Uint64
	events *cloudevent.Sender
}

func (e *entry) standIn(ctx context.Context, cfg Config, serve func(*standIn)) error {
	events, err := sender(cfg, e.agent)
	if err != nil {
		return err
	}
	s := &standIn{cfg: cfg, events: events, since: time.Now()}
	s.seq.Store(uint64(s.since.UnixMicro()))
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	var sent sync.WaitGroup
	sent.Go(func() { _ = events.Run(sending) }) // fails only when sending ends
	serve(s)
	end()
	sent.Wait()
	return nil
}

func (s *standIn) status(state api.State) api.InstanceStatus {
	return api.InstanceStatus{
		Instance: s.cfg.Instance, Function: s.cfg.Function.Name, State: state, Endpoint: s.cfg.Endpoint, Devices: s.cfg.Devices,
		Epoch: s.cfg.Epoch, Seq: s.seq.Add(1), Since: s.since,
	}
}

func (s *standIn) report(status api.InstanceStatus) { s.events.Emit(stateEvent(status)) }

type claiming struct {
	*standIn
	stub *requester
}

func (e *entry) claim(ctx context.Context, cfg Config, door serving) error {
	var failed error
	err := e.standIn(ctx, cfg, func(s *standIn) {
		c := &claiming{standIn: s}
		report := func() { c.report(c.status()) }
		c.stub = newRequester(requesterConfig{Devices: cfg.Devices, Authorize: cfg.authorize, Output: cfg.Output, Logger: cfg.Logger,
			Changed: func(bool) { report() }})
		e.open(c, report, func(control.RegisterAnswer) {})
		report()
		cfg.Logger.Info("this pod claims GPUs and runs no model", "devices", cfg.Devices)
		kill, cancel := context.WithCancel(context.WithoutCancel(ctx)) // called on a kill, or when nobody can release the claim any more
		var watched sync.WaitGroup
		watched.Go(func() {
			defer cancel()
			select {
			case err := <-door.served:
				failed = fmt.Errorf("serve: %w", err)
				door.served <- err
			case <-cfg.Kill:
			case <-kill.Done():
			}
		})
		c.stub.Run(ctx, kill.Done())
		cancel()
		watched.Wait()
		door.shutdown()
		<-door.served //nolint:errcheck // the server was told to end
	})
	return errors.Join(err, failed)
}

func (c *claiming) status() api.InstanceStatus {
	state := api.Asleep
	if c.stub.Ready() {
		state = api.Awake
	}
	s := c.standIn.status(state)
	s.Since = time.Now()
	return s
}

func (c *claiming) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != control.PathState {
		c.stub.ServeHTTP(w, r)
		return
	}
	if c.cfg.admits(w, r) {
		api.WriteJSON(w, http.StatusOK, c.status())
	}
}
