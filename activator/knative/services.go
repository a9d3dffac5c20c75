package knative

import (
	"cmp"
	"log/slog"
	"reflect"
	"sync"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
)

// The front door of other clusters implements it.
type farServices interface {
	// revision stands for the Service.
	Own(service api.Function, revision api.FunctionName)
	// Place is for one that is to run elsewhere.
	Place(service api.Function)
	// Disown ends both.
	Disown(service api.FunctionName)
}

// services tells a front door about the cluster's Services, each described by its revision with the most traffic,
// else the newest. It is safe for concurrent use, and does nothing on nil.
type services struct {
	far farServices
	log *slog.Logger

	mu        sync.Mutex                                      // guards the fields below, and orders the calls of far
	revisions map[api.FunctionName]map[api.FunctionName]known // by Service and revision
	traffic   map[api.FunctionName]map[api.FunctionName]int
	told      map[api.FunctionName]known            // by Service
	away      map[api.FunctionName]api.FunctionName // for clusters elsewhere
}

// function may be elsewhere.
type known struct {
	revision api.FunctionName
	function api.Function
}

func newServices(far farServices, log *slog.Logger) *services {
	return &services{far: far, log: log, revisions: map[api.FunctionName]map[api.FunctionName]known{}, traffic: map[api.FunctionName]map[api.FunctionName]int{}, told: map[api.FunctionName]known{}, away: map[api.FunctionName]api.FunctionName{}}
}

// With Clusters set, f is the Service's function elsewhere.
func (s *services) put(service, revision api.FunctionName, f api.Function) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revisions[service] == nil {
		s.revisions[service] = map[api.FunctionName]known{}
	}
	s.revisions[service][revision] = known{revision, f}
	if delete(s.away, revision); f.Clusters != "" {
		s.away[revision] = service
	}
	s.decide(service)
}

func (s *services) remove(service, revision api.FunctionName) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.revisions[service], revision); len(s.revisions[service]) == 0 {
		delete(s.revisions, service)
	}
	delete(s.away, revision)
	s.decide(service)
}

// Without shares the traffic is unknown.
func (s *services) route(t activator.Traffic) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shares := map[api.FunctionName]int{}
	for _, share := range t.Shares {
		shares[share.Function] += share.Percent
	}
	if s.traffic[t.Service] = shares; len(shares) == 0 {
		delete(s.traffic, t.Service)
	}
	s.decide(t.Service)
}

// elsewhere returns the Service of a revision that runs elsewhere.
func (s *services) elsewhere(revision api.FunctionName) api.FunctionName {
	if s == nil {
		return revision
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.away[revision], revision)
}

// The caller holds mu.
func (s *services) decide(service api.FunctionName) {
	var now known
	shares := s.traffic[service]
	for name, k := range s.revisions[service] {
		if by := cmp.Compare(shares[name], shares[now.revision]); now.revision == "" || by > 0 || by == 0 && name > now.revision {
			now = k // Knative numbers revisions so that their names sort by age
		}
	}
	before := s.told[service]
	if reflect.DeepEqual(before, now) {
		return
	}
	s.told[service] = now
	if before.revision != "" && (now.revision == "" || (before.function.Clusters == "") != (now.function.Clusters == "")) {
		s.far.Disown(service)
	}
	switch {
	case now.revision == "":
		delete(s.told, service)
	case now.function.Clusters != "":
		s.log.Info("a Service is for clusters elsewhere", "service", service, "revision", now.revision, "clusters", now.function.Clusters)
		s.far.Place(now.function)
	default:
		s.far.Own(asService(now.function, service), now.revision)
	}
}

func asService(f api.Function, service api.FunctionName) api.Function {
	f.Name, f.Service = service, ""
	return f
}
