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

// When an instance is doubted: requests for its function have waited this long,
// and it has been silent for this long.
const (
	doubtAfter  = 2 * time.Second
	doubtSilent = 5 * time.Second
	doubtEvery  = time.Second
	askTimeout  = 2 * time.Second
	askAtOnce   = 16
)

// forgetAfter is when an instance without a pod is forgotten: its last report came
// after the news that the pod is gone.
const forgetAfter = 10 * time.Minute

// doubts asks instances that should be there and of which nothing is heard, while
// requests wait for them: a report may have been lost with whoever carried it.
//
//  1. Each second it looks at the functions for which requests wait.
//  2. A pod whose instance has not reported, or not lately and is not awake, is
//     asked for its state, with the credential that is known for it.
//  3. Without a credential, or with one that is refused, the instance is asked to
//     report to the autoscaler, which needs none: the report comes back from there.
type doubts struct {
	core      *activator.Activator
	watch     *watch
	instances *instances
	client    *control.Client
	http      http.RoundTripper
	log       *slog.Logger
}

// run looks each second until ctx ends.
func (d *doubts) run(ctx context.Context) error {
	tick, sweep := time.NewTicker(doubtEvery), time.NewTicker(forgetAfter)
	defer tick.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			d.look(ctx)
		case <-sweep.C:
			d.instances.sweep(time.Now().Add(-forgetAfter))
		}
	}
}

// doubted is an instance to ask.
type doubted struct {
	id       api.InstanceID
	function api.FunctionName
	at       api.Endpoint
}

// look asks all instances that are doubted now, and waits for them.
func (d *doubts) look(ctx context.Context) {
	now := time.Now()
	var group errgroup.Group
	group.SetLimit(askAtOnce)
	for _, name := range d.watch.names() {
		s, known := d.core.Stats(name)
		if !known || s.Waiting == 0 || s.OldestAge < doubtAfter {
			continue
		}
		states := map[api.InstanceID]api.InstanceStatus{}
		for _, st := range s.Instances {
			states[st.Instance] = st
		}
		for id, ip := range d.instances.addresses(name) {
			st, reported := states[id]
			if now.Sub(d.instances.lastHeard(id)) < doubtSilent || reported && st.Ready() {
				continue
			}
			at := st.Endpoint
			if at == "" {
				at = d.watch.endpoint(name, ip)
			}
			d.instances.hear(id) // so that it is asked again only after the same silence
			group.Go(func() error { d.ask(ctx, doubted{id, name, at}); return nil })
		}
	}
	_ = group.Wait() // no function of it fails
}

// ask asks one instance.
func (d *doubts) ask(ctx context.Context, who doubted) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if d.instances.token(who.at) != "" {
		st, err := d.client.State(ctx, who.at)
		if err == nil && st.Instance == who.id && st.Function == who.function {
			d.core.ObserveInstance(st)
			return
		}
		var refused *api.Error
		if err != nil && !errors.As(err, &refused) {
			d.log.Debug("an instance does not say its state", "instance", who.id, "error", err)
			return
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, who.at.URL(control.PathReport), nil)
	if err != nil {
		return // an address that is none; the pod's next one counts
	}
	resp, err := d.http.RoundTrip(r)
	if err != nil {
		d.log.Debug("an instance can't be asked to report", "instance", who.id, "error", err)
		return
	}
	_ = resp.Body.Close()
}
