package functions

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// refused is an instance that can't run what its control plane says, such as an unknown runtime or an invalid model. It reports that
// until it is ended: a process that exits would only be restarted.
type refused struct {
	cfg    Config
	status api.InstanceStatus
	seq    atomic.Uint64
	events *cloudevent.Sender
	stop   func() // ends it
}

// refuse runs an instance that reports the error until it is ended.
func (e *entry) refuse(ctx context.Context, cfg Config, why error, door serving) error {
	cfg.Logger.Error("the instance can't start", "error", why)
	events, err := sender(cfg, e.agent)
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	now := time.Now()
	x := &refused{cfg: cfg, events: events, stop: sync.OnceFunc(func() { close(stopped) }), status: api.InstanceStatus{
		Instance: cfg.Instance, Function: cfg.Function.Name, State: api.Unhealthy, GaveUp: true, Message: why.Error(),
		Endpoint: cfg.Endpoint, Epoch: cfg.Epoch, Devices: cfg.Devices, Since: now,
	}}
	x.seq.Store(uint64(now.UnixMicro()))
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = events.Run(sending) // it only ends with sending
	}()
	e.open(x, x.report, func(control.RegisterAnswer) {})
	x.report()
	select {
	case <-stopped:
	case <-ctx.Done():
	case <-cfg.Kill:
	}
	events.Emit(stateEvent(x.gone()))
	door.shutdown()
	end()
	<-sent
	return nil
}

// now returns the status with the next number.
func (x *refused) now() api.InstanceStatus {
	s := x.status
	s.Seq = x.seq.Add(1)
	return s
}

func (x *refused) gone() api.InstanceStatus {
	s := x.now()
	s.State, s.Message, s.GaveUp = api.Gone, "", false
	return s
}

func (x *refused) report() { x.events.Emit(stateEvent(x.now())) }

// ServeHTTP reports the error to everybody, and lets the control plane end the instance.
func (x *refused) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	why := api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "the instance can't be what it was declared to be: who operates it finds out why with kn rouse why")
	switch r.URL.Path {
	case "/healthz": // a restart would change nothing
		api.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	case control.PathState, control.PathStop, control.PathWake, control.PathSleep, control.PathFence, control.PathLogs:
		if err := x.cfg.authorize(r); err != nil {
			api.WriteError(w, err)
			return
		}
		x.administer(w, r, why)
	default:
		refuse(w, r, why)
	}
}

func (x *refused) administer(w http.ResponseWriter, r *http.Request, why *api.Error) {
	switch r.Method + " " + r.URL.Path {
	case "GET " + control.PathState:
		api.WriteJSON(w, http.StatusOK, x.now())
	case "GET " + control.PathLogs:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(x.status.Message + "\n"))
	case "POST " + control.PathStop:
		var in control.StopRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody)).Decode(&in); err != nil {
			api.WriteError(w, api.BadRequest("", "%s %s: the body is not what is wanted: %v", r.Method, r.URL.Path, err))
			return
		}
		api.WriteJSON(w, http.StatusOK, x.gone())
		x.stop()
	default: // the control plane
		api.WriteError(w, api.Errorf(why.Status, why.Code, "%s", x.status.Message))
	}
}
