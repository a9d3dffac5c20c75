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
	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// elsewhere makes the process a front door of other clusters, whose functions have the names of their Services. One
// of both is one more instance of the revision with the most traffic.
type elsewhere struct {
	*door.Front
	cfg    *door.File
	core   *activator.Activator // set before serving begins
	peers  *agent.Agent         // nil: no other front doors
	agents net.Listener
	log    *slog.Logger
}

const followEvery = 500 * time.Millisecond

// near gets the events of the cluster's own functions, transport its requests.
func (p *process) newElsewhere(near api.Emitter, transport http.RoundTripper, registry *prometheus.Registry) (*elsewhere, error) {
	e := &elsewhere{cfg: p.cfg.Front, log: p.log}
	var err error
	if e.Front, err = door.New(door.Config{Name: p.cfg.PodName, Owner: e.cfg.Owner, Fronts: e.cfg.Fronts, SharesNear: true},
		door.Deps{Activator: e, Near: near, Transport: transport, Changed: e.changed, Logger: p.log, Registry: registry}); err != nil {
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

// meet also creates the agent for other front doors, which have the cluster's own functions themselves.
func (e *elsewhere) meet(p *process) (err error) {
	e.core = p.core
	if e.cfg.Peers == nil {
		return nil
	}
	peers := *e.cfg.Peers
	peers.Self = p.cfg.PodName
	e.peers, err = agent.New(peers, agent.Deps{
		Serve: e.serve, Functions: e.Offered, Emitter: api.EmitterFunc(e.EmitOf), Logger: p.log,
		Stats: func(name api.FunctionName) (api.Activity, bool) {
			a, ok := p.core.Stats(e.Local(name))
			return e.Of(name, a), ok
		}})
	if err != nil {
		return err
	}
	p.events.watch = e.peers.Watch
	return nil
}

// run serves agents until running ends, and other front doors until joined ends.
func (e *elsewhere) run(running, joined context.Context, drain time.Duration) error {
	var done chan error
	if e.peers != nil {
		done = make(chan error, 1)
		go func() { done <- e.peers.Run(joined, drain) }()
	}
	var follow sync.WaitGroup
	follow.Go(func() { door.Follow(running, e.cfg.File, followEvery, e.Declare, e.log) })
	defer follow.Wait()
	err := e.Serve(running, e.agents, door.TLS(e.cfg.TLS))
	if done != nil {
		<-done //nolint:errcheck // it has logged its faults
	}
	return err
}

func (e *elsewhere) changed(name api.FunctionName) {
	if e.peers != nil {
		e.peers.Changed(name)
	}
}

func (p *process) farFunctions(name api.FunctionName) []admin.Far {
	if p.far == nil {
		return nil
	}
	return p.far.Far(name)
}

func (p *process) clusters() []admin.Cluster {
	if p.far == nil {
		return nil
	}
	return p.far.List()
}

// nil: it can start
func (p *process) failed(name api.FunctionName, err *api.Error) {
	if p.far != nil {
		p.far.FailNear(name, err)
		return
	}
	p.core.Fail(name, err)
}
