package knative

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/clusteragent"
	"github.com/rouse-dev/rouse/activator/clusters"
	"github.com/rouse-dev/rouse/activator/joining"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// elsewhere is the part of the process that is a front door of clusters elsewhere. What they serve is known here by the names of
// their Services, as the cluster's own are. Agents that have a Service which the cluster has too are further instances of it (type own).
type elsewhere struct {
	*clusters.Front
	own
	cfg    *joining.Front
	core   *activator.Activator // set before anything is served
	peers  *clusteragent.Agent  // nil: there are no other front doors
	agents net.Listener
	log    *slog.Logger
}

// followEvery is the time between two looks at the file of clusters.
const followEvery = 500 * time.Millisecond

// newElsewhere listens for agents. It serves none yet. The events and the requests of the cluster's own functions go to near and transport.
func (p *process) newElsewhere(near api.Emitter, transport http.RoundTripper, registry *prometheus.Registry) (*elsewhere, error) {
	e := &elsewhere{cfg: p.cfg.Front, log: p.log, own: newOwn()}
	var err error
	if e.Front, err = clusters.New(clusters.Config{Name: p.cfg.PodName, Owner: e.cfg.Owner, Fronts: e.cfg.Fronts, SharesNear: true},
		clusters.Deps{Activator: e, Near: e.toRevisions(near), Transport: transport, Changed: e.changed, Logger: p.log, Registry: registry}); err != nil {
		return nil, err
	}
	if err := e.Declare(e.cfg.Declared); err != nil {
		return nil, err
	}
	if e.agents, err = net.Listen("tcp", e.cfg.Listen); err != nil {
		return nil, fmt.Errorf("listen for agents: %w", err)
	}
	return e, nil
}

// meet gives it the activator, and makes the agent by which other front doors have what its agents have. The
// cluster's own functions they have themselves.
func (e *elsewhere) meet(p *process) (err error) {
	e.core = p.core
	if e.cfg.Peers == nil {
		return nil
	}
	peers := *e.cfg.Peers
	peers.Self = p.cfg.PodName
	e.peers, err = clusteragent.New(peers, clusteragent.Deps{
		Serve: e.serve, Functions: e.Offered, Emitter: api.EmitterFunc(e.EmitOf), Logger: p.log,
		Stats: func(name api.FunctionName) (api.Activity, bool) {
			a, ok := p.core.Stats(e.here(name))
			return e.farOf(name, a), ok
		}})
	if err != nil {
		return err
	}
	p.events.watch = e.peers.Watch
	return nil
}

// run serves agents and other front doors. The first ends with running, the second with joined, when its requests have or drain is over.
func (e *elsewhere) run(running, joined context.Context, drain time.Duration) error {
	var done chan error
	if e.peers != nil {
		done = make(chan error, 1)
		go func() { done <- e.peers.Run(joined, drain) }()
	}
	var follow sync.WaitGroup
	follow.Go(func() { joining.Follow(running, e.cfg.File, followEvery, e.Declare, e.log) })
	defer follow.Wait()
	err := e.Serve(running, e.agents, clusters.TLS(e.cfg.TLS))
	if done != nil {
		<-done //nolint:errcheck // it has logged its faults
	}
	return err
}

// changed tells the other front doors that something else is said of a function.
func (e *elsewhere) changed(name api.FunctionName) {
	if e.peers != nil {
		e.peers.Changed(name)
	}
}

// farFunctions are those that clusters have which the process is a front door of.
func (p *process) farFunctions(name api.FunctionName) []admin.Far {
	if p.far == nil {
		return nil
	}
	return p.far.Far(name)
}

// clusters are those that the process declares as a front door.
func (p *process) clusters() []admin.Cluster {
	if p.far == nil {
		return nil
	}
	return p.far.List()
}

// failed takes in that a function of the cluster can't start, or that it can again.
func (p *process) failed(name api.FunctionName, err *api.Error) {
	if p.far != nil && p.far.isOwn(name) {
		p.far.failNear(name, err)
		return
	}
	p.core.Fail(name, err)
}
