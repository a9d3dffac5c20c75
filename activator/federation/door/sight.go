package door

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
)

// LabelRegion is the label of a declaration for the cluster's region. An agent's own label does not count.
const LabelRegion = "topology.kubernetes.io/region"

// bars returns why a tenant's requests to a function may not be sent to a cluster; empty: they may. An empty tenant
// is a client without one.
func bars(d Declaration, regions []string, tenant string) string {
	region := d.Labels[LabelRegion]
	switch {
	case len(regions) > 0 && region == "":
		return fmt.Sprintf("its region is not declared, and requests may not leave %s (%s)", strings.Join(regions, ", "), api.AnnotationRegions)
	case len(regions) > 0 && !slices.Contains(regions, region):
		return fmt.Sprintf("its region is %s, and requests may not leave %s (%s)", region, strings.Join(regions, ", "), api.AnnotationRegions)
	case len(d.Tenants) == 0 || tenant != "" && slices.Contains(d.Tenants, tenant):
		return ""
	case tenant == "":
		return "it may not see requests of clients without a tenant"
	}
	return "it may not see requests of the tenant " + tenant
}

// regions returns the regions that a function's requests may be sent to; none: any. The caller holds mu.
func (f *Front) regions(fn *function) []string {
	if fn.placed != nil {
		return fn.placed.spec.Regions
	}
	if n := f.near[fn.name]; n != nil {
		return n.spec.Regions
	}
	return nil
}

// Sees implements [activator.Sight]. Instances are agents' offers, or this machine's own, which may see all.
func (f *Front) Sees(name api.FunctionName) func(client string, i api.InstanceID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.functions[name]
	if fn == nil {
		return nil
	}
	regions := f.regions(fn)
	if len(regions) == 0 && !f.byTenant {
		return nil
	}
	far := map[api.InstanceID]Declaration{}
	for agent, o := range fn.offers {
		far[instance(agent, name)] = o.session.declared
	}
	near := f.isNear(name)
	return func(client string, i api.InstanceID) bool {
		d, is := far[i]
		return is && bars(d, regions, peer.Tenant(client)) == "" || !is && near
	}
}

// Bars implements [activator.Sight]. A cluster that has just gone may return.
func (f *Front) Bars(name api.FunctionName, client string) *api.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.functions[name]
	if fn == nil || f.isNear(name) {
		return nil
	}
	if fn.away != nil {
		return fn.away
	}
	tenant, regions, now := peer.Tenant(client), f.regions(fn), time.Now()
	here := map[string]bool{}
	var why []string
	for _, agent := range slices.Sorted(maps.Keys(f.sessions)) {
		s := f.sessions[agent]
		here[s.hello.Cluster] = true
		if !s.complete && s.declared.allows(name) && bars(s.declared, regions, tenant) == "" && now.Before(s.since.Add(protocol.DeadAfter)) {
			return nil // it has not reported its functions yet
		}
		if !s.declared.allows(name) || fn.offers[agent] == nil && (fn.placed == nil || fn.unfit(s, now) != "") {
			continue
		}
		reason := bars(s.declared, regions, tenant)
		if reason == "" {
			return nil
		}
		why = append(why, s.hello.Cluster+": "+reason)
	}
	for _, d := range f.declared {
		if !here[d.Name] && d.allows(name) && bars(d, regions, tenant) == "" && now.Before(f.away(d.Name).Add(f.cfg.Keep)) {
			return nil
		}
	}
	if len(why) == 0 {
		return nil // no cluster has it
	}
	return api.Errorf(http.StatusForbidden, api.CodeNotAllowed, "no cluster for %s may see these requests: %s", name, strings.Join(why, "; "))
}

// away returns since when a cluster has had no agent here.
func (f *Front) away(cluster string) time.Time {
	if l, ok := f.lost[cluster]; ok {
		return l.at
	}
	return f.begun
}

// isNear reports whether this machine has a function itself. The caller holds mu.
func (f *Front) isNear(name api.FunctionName) bool {
	_, is := f.near[name]
	return is
}

// group is waiting requests of tenants that the same clusters may see.
type group struct {
	waiting int
	tenants map[string]int
	tenant  string // one of them
}

// groups divides the requests that wait for a function by the clusters that may see them. The caller holds mu.
func (f *Front) groups(fn *function, d api.Demand) (list []group) {
	regions := f.regions(fn)
	if len(d.Tenants) == 0 || !f.byTenant {
		return []group{{waiting: d.Waiting, tenants: d.Tenants}}
	}
	at := map[string]int{}
	agents := slices.Sorted(maps.Keys(f.sessions))
	left := d.Waiting
	for _, client := range slices.Sorted(maps.Keys(d.Tenants)) {
		tenant := peer.Tenant(client)
		var seen strings.Builder
		for _, agent := range agents {
			if bars(f.sessions[agent].declared, regions, tenant) == "" {
				seen.WriteByte('1')
			} else {
				seen.WriteByte('0')
			}
		}
		i, ok := at[seen.String()]
		if !ok {
			i = len(list)
			at[seen.String()] = i
			list = append(list, group{tenants: map[string]int{}, tenant: tenant})
		}
		n := min(d.Tenants[client], left)
		left -= n
		list[i].waiting += n
		list[i].tenants[client] = n
	}
	return list
}
