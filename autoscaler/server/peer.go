package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

type peer struct {
	Activator
	of    *Activators
	ready atomic.Bool
	left  chan struct{} // closed by Set when the pod is gone
	bell  bell.Bell     // rung when a report is queued, received by run
	hurry bell.Bell     // rung by Set when the pod becomes ready

	mu    sync.Mutex       // guards all below
	order []api.InstanceID // of queued reports
	wait  map[api.InstanceID]waiting
}

type waiting struct {
	report control.InstanceReport
	grant  bool // send its standing grant, too
}

func newPeer(of *Activators, a Activator) *peer {
	p := &peer{Activator: a, of: of, left: make(chan struct{}), bell: bell.New(), hurry: bell.New(), wait: map[api.InstanceID]waiting{}}
	p.ready.Store(a.Ready)
	return p
}

func (p *peer) alive() bool {
	select {
	case <-p.left:
		return false
	default:
		return p.ready.Load()
	}
}

func (p *peer) queue(r control.InstanceReport, grant bool) {
	id := r.Status.Instance
	p.mu.Lock()
	w, found := p.wait[id]
	if !found {
		p.order = append(p.order, id)
	}
	p.wait[id] = waiting{r, grant || w.grant}
	p.mu.Unlock()
	p.bell.Ring()
}

func (p *peer) next() (w waiting, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.order) == 0 {
		return waiting{}, false
	}
	id := p.order[0]
	p.order = p.order[1:]
	w = p.wait[id]
	delete(p.wait, id)
	return w, true
}

func (p *peer) again(w waiting) {
	id := w.report.Status.Instance
	p.mu.Lock()
	defer p.mu.Unlock()
	if newer, found := p.wait[id]; found {
		newer.grant = newer.grant || w.grant
		p.wait[id] = newer
		return
	}
	p.order = append([]api.InstanceID{id}, p.order...)
	p.wait[id] = w
}

// run sends everything again after a failure, and at intervals.
func (p *peer) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resend := time.NewTicker(resendEvery)
	defer resend.Stop()
	failures := 0
	for {
		w, found := p.next()
		if !found {
			select {
			case <-p.bell:
			case <-resend.C:
				p.everything()
			case <-p.left:
				return
			case <-ctx.Done():
				return
			}
			continue
		}
		err := p.tell(ctx, w)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if failures > 0 {
				p.of.log.Info("an activator can be reached again and is told everything", "activator", p.Name)
				failures = 0
				p.everything()
			}
			continue
		}
		if failures++; failures == 1 && p.alive() {
			p.of.log.Warn("an activator can't be told of instances; trying on", "activator", p.Name, "error", err)
		}
		p.again(w)
		if !p.pause(ctx, failures) {
			return
		}
	}
}

func (p *peer) everything() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.fill(p)
}

// pause returns false if there is no next try.
func (p *peer) pause(ctx context.Context, failures int) bool {
	timer := time.NewTimer(min(pauseMost, pauseFirst<<min(failures-1, 10)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.hurry:
		return true
	case <-p.left:
		return false
	case <-ctx.Done():
		return false
	}
}

// tell drops a report that the activator refuses for good.
func (p *peer) tell(ctx context.Context, w waiting) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := p.post(ctx, control.PathInstances, w.report)
	if err == nil && w.grant {
		p.of.mu.Lock()
		g, found := p.of.grants[w.report.Status.Instance] // it may have been revoked in between
		p.of.mu.Unlock()
		if found && g.Valid(time.Now()) {
			g.Life = time.Until(g.Expires)
			err = p.post(ctx, control.PathGrants, g)
		}
	}
	if final(err) {
		p.of.log.Error("an activator refuses an instance's report: are autoscaler and activator of one version?",
			"activator", p.Name, "instance", w.report.Status.Instance, "error", err)
		return nil
	}
	return err
}

// final reports whether retries are useless. They are not for a refused token: tokens change.
func final(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Status/100 == 4 && e.Status != http.StatusUnauthorized &&
		e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// insist posts until the request is accepted, the activator is no longer alive, or ctx ends.
func (p *peer) insist(ctx context.Context, path string, body any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.left: // it can do nothing any more, whatever its answer
			cancel(errLeft)
		case <-ctx.Done():
		}
	}()
	for failures := 1; ; failures++ {
		err := p.post(ctx, path, body)
		if err == nil || !p.alive() {
			return nil
		}
		if final(err) || ctx.Err() != nil || !p.pause(ctx, failures) && p.alive() {
			return err
		}
	}
}

var errLeft = errors.New("the activator has left")

func statsPath(f api.FunctionName) string {
	return control.PathStats + "?function=" + url.QueryEscape(string(f))
}

func (p *peer) post(ctx context.Context, path string, body any) error {
	return p.of.client.Call(ctx, http.MethodPost, p.Endpoint, path, body, nil, maxAnswer)
}

func (p *peer) get(ctx context.Context, path string, answer any) error {
	return p.of.client.Call(ctx, http.MethodGet, p.Endpoint, path, nil, answer, maxAnswer)
}

const maxAnswer = 16 << 20
