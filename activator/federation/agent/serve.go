package agent

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

type attempt struct {
	front  *front
	number uint64
	answer *answer
	cancel context.CancelCauseFunc
	client peer.Peer
}

// answer records whether a response has begun.
type answer struct {
	http.ResponseWriter
	begun atomic.Bool
}

func (w *answer) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.begun.Store(true)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(p []byte) (int, error) {
	w.begun.Store(true)
	return w.ResponseWriter.Write(p)
}

func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := s.f.a
	name, call := api.FunctionName(r.Header.Get(protocol.HeaderFunction)), r.Header.Get(protocol.HeaderCall)
	if name == "" && r.URL.Path == control.PathUsage && a.deps.Usage != nil {
		a.deps.Usage(w, r)
		return
	}
	number, err := strconv.ParseUint(r.Header.Get(protocol.HeaderAttempt), 10, 64)
	if err != nil || name == "" || call == "" {
		api.WriteError(w, api.BadRequest("", "a front door names the function, the call and the attempt"))
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	at := &attempt{s.f, number, &answer{ResponseWriter: w}, cancel, s.client(r)}
	if e := a.beginAttempt(name, call, at); e != nil {
		w.Header().Set(control.HeaderRefused, e.Code)
		api.WriteError(w, e)
		return
	}
	defer a.endAttempt(name, call, at)
	a.deps.Serve(at.answer, peer.As(r.WithContext(ctx), at.client), name)
}

func (s *session) client(r *http.Request) peer.Peer {
	p := peer.Peer{Trusted: r.Header.Get(control.HeaderTrusted) != "", Turn: control.TakeTurn(r.Header)}
	p.Turn.Source = s.source
	if tenant := r.Header.Get(control.HeaderTenant); tenant != "" {
		p.Client = peer.Passed(tenant)
	} else { // on the front door's own machine
		p.Client, p.Local = "front", true
	}
	return p
}

func errCutOff() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "this cluster was cut off from the front door for too long")
}

func (a *Agent) beginAttempt(name api.FunctionName, call string, at *attempt) *api.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	stats, ok := a.deps.Stats(name)
	old := a.attempts[call]
	switch {
	case !ok:
		return api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "this cluster does not serve %s", name)
	case a.leaving:
		return api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "this cluster's agent is ending")
	case time.Now().After(at.front.lease):
		return errCutOff()
	case old != nil && old.number >= at.number:
		return api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "a later attempt of this request has come before")
	case Free(stats) <= 0 && old == nil && (at.client.Turn.Client == 0 || at.front.served[name] >= mayWait*slots(stats)):
		return api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "no place is free")
	}
	if old != nil {
		a.doubles++
		old.cancel(api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "a later attempt of this request has come"))
	}
	a.attempts[call] = at
	at.front.served[name]++
	a.begun++
	at.front.last[name] = a.begun
	return nil
}

func (a *Agent) endAttempt(name api.FunctionName, call string, at *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attempts[call] == at {
		delete(a.attempts, call)
	}
	served := at.front.served
	if served[name]--; served[name] == 0 {
		delete(served, name)
	}
	a.Changed(name)
}

// The caller holds the agent's mutex.
func (f *front) renewLease(until time.Time) {
	if until.After(f.lease) {
		f.lease = until
		f.expiry.Reset(time.Until(until))
	}
}

// expireLease cancels the attempts that have no first byte, unless the lease was renewed.
func (f *front) expireLease() {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	if time.Now().Before(f.lease) {
		return
	}
	for _, at := range f.a.attempts {
		if at.front == f && !at.answer.begun.Load() {
			at.cancel(errCutOff())
		}
	}
}

// Free returns the number of unused slots of awake instances.
func Free(a api.Activity) int { return slots(a) - a.Running }

func slots(a api.Activity) (n int) {
	for _, st := range a.Instances {
		if st.Ready() {
			n += max(st.Concurrency, 1)
		}
	}
	return n
}

// mayWait is how many requests a front door may have here for each slot, running or waiting. With 2 the few clients of
// one front door get half as much again as each of the many of another.
const mayWait = 4
