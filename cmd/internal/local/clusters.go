package local

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator"
	federation "github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// farFunctions also returns the activator's emitter and transport.
func (s *server) farFunctions(registry *prometheus.Registry) (api.Emitter, http.RoundTripper, error) {
	near := reaching{s.agent, localhttp.New(256, idleConnection)}
	if s.cfg.Clusters == nil {
		return s.bus, near, nil
	}
	var err error
	s.far, err = door.New(door.Config{Name: s.cfg.Clusters.Name, Fronts: s.cfg.Clusters.Fronts},
		door.Deps{Activator: &s.activator, Near: s.bus, Transport: near, Changed: s.changed, Tell: s.cfg.Tell, Logger: s.cfg.Logger, Registry: registry})
	if err != nil {
		return nil, nil, err
	}
	if err := s.far.Declare(s.cfg.Clusters.Declared); err != nil {
		return nil, nil, err
	}
	if s.agents, err = net.Listen("tcp", s.cfg.Clusters.Listen); err != nil {
		return nil, nil, fmt.Errorf("listen for agents: %w", err)
	}
	if s.others = s.far.Share(s.cfg.Clusters.Peers); s.others != nil && s.keys != nil {
		s.keys.Among(s.others)
	}
	s.info.Clusters = s.agents.Addr().String()
	return s.far, s.far, nil
}

// farActivator is created after the front door of clusters.
type farActivator struct{ *activator.Activator }

// newAgents offers this machine's functions, and those of its own agents, to other front doors.
func (s *server) newAgents() error {
	if s.cfg.Join != nil {
		cfg := *s.cfg.Join
		cfg.Accept.Memory = s.room()
		if err := s.newAgent(cfg, federation.Deps{Functions: s.ownFunctions, Stats: s.activator.Stats, Wakes: s.autoscaler.WakeTraces, Emitter: api.EmitterFunc(s.route), Applier: applier{s}}); err != nil {
			return err
		}
	}
	if s.far == nil || s.cfg.Clusters.Peers == nil {
		return nil
	}
	return s.newAgent(*s.cfg.Clusters.Peers, federation.Deps{
		Functions: func() []api.Function { return append(s.ownFunctions(), s.far.Offered()...) },
		Stats: func(name api.FunctionName) (api.Activity, bool) {
			a, ok := s.activator.Stats(name)
			return s.far.Of(name, a), ok
		},
		Wakes: func(name api.FunctionName) []api.WakeTrace {
			return append(s.far.Wakes(name), s.autoscaler.WakeTraces(name)...)
		},
		Emitter: api.EmitterFunc(s.far.EmitOf), Usage: s.far.ServeUsage,
	})
}

func (s *server) newAgent(cfg federation.Config, deps federation.Deps) error {
	deps.Serve, deps.Logger, deps.Tell = s.activator.ServeAtOnce, s.cfg.Logger, s.cfg.Tell
	a, err := federation.New(cfg, deps)
	if err != nil {
		return err
	}
	s.joined = append(s.joined, a)
	s.bus.Receive(a.Watch)
	return nil
}

func (s *server) changed(name api.FunctionName) {
	for _, a := range s.joined {
		a.Changed(name)
	}
}

func (s *server) ownFunctions() []api.Function {
	s.owning.Lock()
	defer s.owning.Unlock()
	list := slices.Collect(maps.Values(s.own))
	slices.SortFunc(list, func(a, b api.Function) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (s *server) owns(f api.Function, has bool) {
	var local api.FunctionName
	s.owning.Lock()
	if has {
		s.own[f.Name], local = f, f.Name
	} else {
		delete(s.own, f.Name)
	}
	s.owning.Unlock()
	if s.far != nil {
		s.far.Near(f, local)
	}
}
