package door

import (
	"maps"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// List returns the state of the declared clusters, ordered by name.
func (f *Front) List() []admin.Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]admin.Cluster, 0, len(f.declared))
	for _, name := range slices.Sorted(maps.Keys(f.declared)) {
		list = append(list, f.show(f.declared[name]))
	}
	return list
}

// show returns the state of one cluster. The caller holds mu.
func (f *Front) show(d Declaration) admin.Cluster {
	c := admin.Cluster{Name: d.Name, Front: d.Front, State: admin.ClusterAway}
	if l, was := f.lost[d.Name]; was {
		c.Since = l.at
	}
	var since time.Time
	refused := map[string]bool{}
	for _, agent := range slices.Sorted(maps.Keys(f.sessions)) {
		s := f.sessions[agent]
		if s.hello.Cluster != d.Name {
			continue
		}
		c.Agents = append(c.Agents, admin.ClusterAgent{Name: s.hello.Agent, Version: s.hello.Version, Way: s.way, Since: s.since, Links: s.links})
		if since.IsZero() || s.since.Before(since) {
			since = s.since
		}
		if !s.leaving {
			c.State = admin.ClusterJoined
		} else if c.State == admin.ClusterAway {
			c.State = admin.ClusterLeaving
		}
		for r := range s.refusals {
			refused[string(r.Function)+": "+r.Reason] = true
		}
	}
	if !since.IsZero() {
		c.Since = since
	}
	if r, was := f.rejected[d.Name]; was {
		c.Rejected, c.RejectedAt = r.reason, r.at
	}
	c.Refused = slices.Sorted(maps.Keys(refused))
	for _, name := range slices.Sorted(maps.Keys(f.functions)) {
		served, awake := false, false
		for _, o := range f.functions[name].offers {
			if o.session.hello.Cluster == d.Name {
				served, awake = true, awake || o.state.State == api.Awake
				c.Running += o.state.Running
			}
		}
		if served {
			c.Functions = append(c.Functions, string(name))
		}
		if awake {
			c.Awake++
		}
	}
	return c
}
