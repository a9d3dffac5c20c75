package door

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// LabelCluster is a label that each cluster has: its declared name.
const LabelCluster = "rouse.dev/cluster"

// candidates returns the agents that a function fits, and why it does not fit the others.
func (f *Front) candidates(fn *function, tenant string, now time.Time) (list []candidate, why []string) {
	created := map[string]int{} // functions at an agent
	for _, other := range f.functions {
		for agent, o := range other.offers {
			if o.state.Applied {
				created[agent]++
			}
		}
	}
	for _, agent := range slices.Sorted(maps.Keys(f.sessions)) {
		s := f.sessions[agent]
		if reason := cmp.Or(fn.unfit(s, now), bars(s.declared, fn.placed.spec.Regions, tenant)); reason != "" {
			why = append(why, s.hello.Cluster+": "+reason)
			continue
		}
		list = append(list, candidate{Name: agent, State: api.Gone, Expected: fn.placed.took[s.hello.Cluster], Way: s.way,
			Running: created[agent], Slots: protocol.MaxFunctions, Cost: s.declared.Cost})
	}
	return list, why
}

// unfit returns why a function can't be created at an agent, or "".
func (fn *function) unfit(s *session, now time.Time) string {
	p := fn.placed
	refused, offered := p.refused[s.agent()], fn.offers[s.agent()]
	switch {
	case s.declared.Front:
		return "it is another front door"
	case !s.declared.allows(fn.name):
		return "not among the functions that the front door declares for it"
	case !p.selector.matches(s.labels()):
		return fmt.Sprintf("its labels are not as %s says (%s)", api.AnnotationClusters, p.spec.Clusters)
	case s.leaving:
		return "it is ending"
	case !accepts(s.accepts, fn.name):
		return "it accepts no function of that name from a front door (rouse up --accept-functions)"
	case offered != nil && offered.state.Failed != nil:
		return offered.state.Failed.Message
	case offered != nil && offered.removing == 0:
		return "it has the function"
	case refused != nil && now.Before(refused.until):
		return refused.err.Message
	}
	return tooSmall(s.accepts.Memory, p.spec.Memory)
}

// tooSmall returns why an instance does not fit into the memory of a cluster; empty: it fits, or that is unknown.
func tooSmall(has *api.Memory, needs api.Memory) string {
	switch {
	case has == nil:
	case needs.Host > has.Host:
		return fmt.Sprintf("it needs %s of host memory and there is %s", needs.Host, has.Host)
	case needs.Devices > has.Devices:
		return fmt.Sprintf("it needs %d GPUs and there are %d", needs.Devices, has.Devices)
	case needs.Devices > 0 && needs.PerDevice > has.PerDevice:
		return fmt.Sprintf("it needs %s on each GPU and there is %s", needs.PerDevice, has.PerDevice)
	}
	return ""
}

func accepts(a protocol.Accepts, name api.FunctionName) bool {
	return slices.ContainsFunc(a.Functions, func(p string) bool {
		ok, err := path.Match(p, string(name))
		return ok && err == nil
	})
}

// labels returns the labels of the session's cluster: declared ones override its agent's.
func (s *session) labels() map[string]string {
	all := map[string]string{}
	maps.Copy(all, s.hello.Labels)
	maps.Copy(all, s.declared.Labels)
	all[LabelCluster] = s.declared.Name
	return all
}

// mayCome returns until when to wait for a cluster that has just gone, or that has come and not yet reported what it
// has and accepts; zero: no such cluster.
func (f *Front) mayCome(fn *function, tenant string, now time.Time) (until time.Time) {
	here := map[string]bool{}
	for _, s := range f.sessions {
		here[s.hello.Cluster] = true
		if t := s.since.Add(protocol.DeadAfter); !s.complete && !s.leaving && now.Before(t) && t.After(until) {
			until = t
		}
	}
	for name, d := range f.declared {
		since := f.begun
		if l, ok := f.lost[name]; ok {
			if since = l.at; !fn.placed.selector.matches(l.session.labels()) || !accepts(l.session.accepts, fn.name) {
				continue
			}
		}
		if t := since.Add(f.cfg.Keep); !here[name] && !d.Front && d.allows(fn.name) && bars(d, fn.placed.spec.Regions, tenant) == "" && now.Before(t) && t.After(until) {
			until = t
		}
	}
	return until
}

// nowhere returns the error for requests for a function that fits nowhere.
func (fn *function) nowhere(why []string) *api.Error {
	if failed := fn.failure(); failed != nil && len(why) <= 1 {
		return failed
	}
	if len(why) == 0 {
		why = []string{"none is connected"}
	}
	return api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "no cluster takes %s: %s", fn.name, strings.Join(why, "; ")).WithRetryAfter(retryPlace)
}
