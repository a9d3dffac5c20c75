package knative

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// An instance is stale if it is silent and its function's requests have waited.
const (
	staleAfter   = 2 * time.Second
	staleSilent  = 5 * time.Second
	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
	probeAtOnce  = 16
)

// An instance's last report may come after its pod's deletion.
const forgetAfter = 10 * time.Minute

// prober asks stale instances for their state: a report may have been lost.
//
//  1. Each second it checks the functions with waiting requests.
//  2. A stale instance that is not awake is asked with its credential.
//  3. Without a valid one it is asked to report to the autoscaler.
type prober struct {
	core      *activator.Activator
	watch     *watch
	instances *instances
	client    *control.Client
	http      http.RoundTripper
	log       *slog.Logger
}

func (p *prober) run(ctx context.Context) error {
	tick, sweep := time.NewTicker(probeEvery), time.NewTicker(forgetAfter)
	defer tick.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.probe(ctx)
		case <-sweep.C:
			p.instances.sweep(time.Now().Add(-forgetAfter))
		}
	}
}

type stale struct {
	id       api.InstanceID
	function api.FunctionName
	at       api.Endpoint
}

// probe waits for the answers.
func (p *prober) probe(ctx context.Context) {
	now := time.Now()
	var group errgroup.Group
	group.SetLimit(probeAtOnce)
	for _, name := range p.watch.names() {
		s, known := p.core.Stats(name)
		if !known || s.Waiting == 0 || s.OldestAge < staleAfter {
			continue
		}
		states := map[api.InstanceID]api.InstanceStatus{}
		for _, st := range s.Instances {
			states[st.Instance] = st
		}
		for id, ip := range p.instances.addresses(name) {
			st, reported := states[id]
			if now.Sub(p.instances.lastHeard(id)) < staleSilent || reported && st.Ready() {
				continue
			}
			at := st.Endpoint
			if port := p.instances.port(id); at == "" && port > 0 {
				at = podEndpoint(ip, port)
			} else if at == "" {
				at = p.watch.endpoint(name, ip)
			}
			p.instances.hear(id) // next time after the same silence
			group.Go(func() error { p.ask(ctx, stale{id, name, at}); return nil })
		}
	}
	_ = group.Wait()
}

func (p *prober) ask(ctx context.Context, i stale) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if p.instances.token(i.at) != "" {
		st, err := p.client.State(ctx, i.at)
		if err == nil && st.Instance == i.id && st.Function == i.function {
			p.watch.observe(st)
			return
		}
		var refused *api.Error
		if err != nil && !errors.As(err, &refused) {
			p.log.Debug("an instance does not answer with its state", "instance", i.id, "error", err)
			return
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.at.URL(control.PathReport), nil)
	if err != nil {
		return
	}
	resp, err := p.http.RoundTrip(r)
	if err != nil {
		p.log.Debug("an instance can't be asked to report", "instance", i.id, "error", err)
		return
	}
	_ = resp.Body.Close()
}
