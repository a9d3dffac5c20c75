package agent

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

type attempt struct {
	number uint64
	cancel context.CancelCauseFunc
}

// ServeHTTP implements [http.Handler] for the front door's requests on a session's link.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := s.f.a
	name := api.FunctionName(r.Header.Get(protocol.HeaderFunction))
	number, err := strconv.ParseUint(r.Header.Get(protocol.HeaderAttempt), 10, 64)
	if err != nil || name == "" || r.Header.Get(protocol.HeaderCall) == "" {
		api.WriteError(w, api.BadRequest("", "a front door names the function, the call and the attempt"))
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	id := r.Header.Get(protocol.HeaderCall)
	at := &attempt{number: number, cancel: cancel}
	if e := a.enter(s.f, name, id, at); e != nil {
		w.Header().Set(control.HeaderRefused, e.Code)
		api.WriteError(w, e)
		return
	}
	defer a.exit(s.f, name, id, at)
	first := &watching{ResponseWriter: w}
	stop := a.whileLeased(ctx, s.f, first, cancel)
	defer stop()
	a.deps.Serve(first, peer.As(r.WithContext(ctx), client(r)), name)
}

// client returns the client of a request, as named by the front door.
func client(r *http.Request) peer.Peer {
	tenant := r.Header.Get(control.HeaderTenant)
	if tenant == "" { // a client on the front door's own machine
		return peer.Peer{Client: "front", Trusted: r.Header.Get(control.HeaderTrusted) != "", Local: true}
	}
	return peer.Peer{Client: peer.Passed(tenant), Trusted: r.Header.Get(control.HeaderTrusted) != ""}
}

// enter admits an attempt, or returns why there is no slot for it.
func (a *Agent) enter(f *front, name api.FunctionName, id string, at *attempt) *api.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	stats, ok := a.deps.Stats(name)
	old := a.attempts[id]
	switch {
	case !ok:
		return api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "this cluster does not serve %s", name)
	case a.leaving:
		return api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "this cluster's agent is ending")
	case time.Now().After(f.lease):
		return api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "this cluster was cut off from the front door for too long")
	case old != nil && old.number >= at.number:
		return api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "a later attempt of this request has come before")
	case Free(stats) <= 0 && old == nil:
		return api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "no place is free")
	}
	if old != nil {
		a.doubles++
		old.cancel(api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "a later attempt of this request has come"))
	}
	a.attempts[id] = at
	f.served[name]++
	return nil
}

// Free returns the number of unused slots of awake instances.
func Free(a api.Activity) int {
	slots := 0
	for _, st := range a.Instances {
		if st.Ready() {
			slots += max(st.Concurrency, 1)
		}
	}
	return slots - a.Running
}

// exit removes an attempt.
func (a *Agent) exit(f *front, name api.FunctionName, id string, at *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attempts[id] == at {
		delete(a.attempts, id)
	}
	if f.served[name]--; f.served[name] == 0 {
		delete(f.served, name)
	}
	a.changed(name)
}

// whileLeased cancels an attempt if the lease ends before its first byte.
func (a *Agent) whileLeased(ctx context.Context, f *front, w *watching, cancel context.CancelCauseFunc) (stop func()) {
	left := func() time.Duration {
		a.mu.Lock()
		defer a.mu.Unlock()
		return time.Until(f.lease)
	}
	var timer *time.Timer
	armed := make(chan struct{}) // closed when timer is set
	timer = time.AfterFunc(left(), func() {
		<-armed
		switch more := left(); {
		case ctx.Err() != nil || w.begun.Load():
		case more <= 0:
			cancel(api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "this cluster was cut off from the front door for too long"))
		default:
			timer.Reset(more)
		}
	})
	close(armed)
	return func() { timer.Stop() }
}
