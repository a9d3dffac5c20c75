package functions

import (
	"context"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// refused is an instance that can't run what its control plane says. It reports that until it is ended: a process that exits would only
// be restarted.
type refused struct {
	*standIn
	message string
	stop    func()
}

func (e *entry) refuse(ctx context.Context, cfg Config, why error, door serving) error {
	cfg.Logger.Error("the instance can't start", "error", why)
	return e.standIn(ctx, cfg, func(s *standIn) {
		stopped, stop := context.WithCancel(ctx)
		defer stop()
		x := &refused{standIn: s, message: why.Error(), stop: stop}
		report := func() { x.report(x.now()) }
		e.open(x, report, func(control.RegisterAnswer) {})
		report()
		select {
		case <-stopped.Done():
		case <-cfg.Kill:
		}
		x.report(x.status(api.Gone))
		door.shutdown()
	})
}

func (x *refused) now() api.InstanceStatus {
	s := x.status(api.Unhealthy)
	s.GaveUp, s.Message = true, x.message
	return s
}

func (x *refused) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case proxy.AnswersProbe(w, r):
	case !strings.HasPrefix(r.URL.Path, "/rouse/"):
		refuse(w, r, api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "the instance can't be what it was declared to be: who operates it finds out why with kn rouse why"))
	case x.cfg.admits(w, r):
		x.administer(w, r)
	}
}

func (x *refused) administer(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET " + control.PathState:
		api.WriteJSON(w, http.StatusOK, x.now())
	case "GET " + control.PathLogs:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(x.message + "\n"))
	case "POST " + control.PathStop:
		answerCall(w, r, func(context.Context, control.StopRequest) (api.InstanceStatus, error) {
			gone := x.status(api.Gone)
			x.stop()
			return gone, nil
		})
	default:
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "%s", x.message))
	}
}
