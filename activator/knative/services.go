package knative

import (
	"cmp"
	"log/slog"
	"reflect"
	"sync"

	"knative.dev/serving/pkg/apis/serving"
	v1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
)

// farServices is what the front door of clusters elsewhere is told of the cluster's own Services.
type farServices interface {
	// Own says that the cluster has a Service itself, as the function of a revision.
	Own(service api.Function, revision api.FunctionName)
	// Place says that a Service is to run in clusters elsewhere.
	Place(service api.Function)
	// Disown says that it is neither any more.
	Disown(service api.FunctionName)
}

// services tells a front door of clusters what is to be known of the cluster's Services. The revision that has the most of a Service's
// traffic, or without any the newest, says what the Service is: of the cluster, or with [api.AnnotationClusters] to be
// created elsewhere. The methods do nothing for nil; they are safe for many goroutines.
type services struct {
	far farServices
	log *slog.Logger

	mu        sync.Mutex                                      // guards what follows, and orders the calls of far
	revisions map[api.FunctionName]map[api.FunctionName]known // by Service
	traffic   map[api.FunctionName]map[api.FunctionName]int
	told      map[api.FunctionName]known            // by Service
	away      map[api.FunctionName]api.FunctionName // the Services of revisions that are for clusters elsewhere
}

// known is a revision: the function that it is here, or the one that its Service is elsewhere.
type known struct {
	revision api.FunctionName
	function api.Function
}

func newServices(far farServices, log *slog.Logger) *services {
	return &services{far: far, log: log, revisions: map[api.FunctionName]map[api.FunctionName]known{}, traffic: map[api.FunctionName]map[api.FunctionName]int{}, told: map[api.FunctionName]known{}, away: map[api.FunctionName]api.FunctionName{}}
}

// serviceOfRevision is the Service that a revision belongs to, or itself.
func serviceOfRevision(rev *v1.Revision) api.FunctionName {
	return api.NewFunctionName(rev.Namespace, cmp.Or(rev.Labels[serving.ServiceLabelKey], rev.Name))
}

// put takes in a revision of a Service: f is the function that it is here or, where it has Clusters, that the Service is elsewhere.
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

// remove takes in that a revision is gone.
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

// route takes in how a Service's requests are divided; without shares nobody knows.
func (s *services) route(t api.Traffic) {
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

// elsewhere is the function that a revision's requests are for: its Service's, where that runs elsewhere.
func (s *services) elsewhere(revision api.FunctionName) api.FunctionName {
	if s == nil {
		return revision
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.away[revision], revision)
}

// decide tells the front door what a Service is, where that is news. The caller holds mu.
func (s *services) decide(service api.FunctionName) {
	var now known
	shares := s.traffic[service]
	for name, k := range s.revisions[service] {
		if by := cmp.Compare(shares[name], shares[now.revision]); now.revision == "" || by > 0 || by == 0 && name > now.revision {
			now = k // Knative numbers revisions so that their names grow
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

// asService is a revision's function by the name of its Service.
func asService(f api.Function, service api.FunctionName) api.Function {
	f.Name, f.Service = service, ""
	return f
}
