package door

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
)

// LabelRegion is the label of a declaration for the cluster's region.
const LabelRegion = "topology.kubernetes.io/region"

// bars returns why a tenant's requests may not be sent to a cluster. tenant may be empty.
func bars(d Declaration, regions []string, tenant string) string {
	region := d.Labels[LabelRegion]
	switch {
	case len(regions) > 0 && region == "":
		return fmt.Sprintf("its region is not declared, and requests may not leave %s (rouse.dev/regions)", strings.Join(regions, ", "))
	case len(regions) > 0 && !slices.Contains(regions, region):
		return fmt.Sprintf("its region is %s, and requests may not leave %s (rouse.dev/regions)", region, strings.Join(regions, ", "))
	case len(d.Tenants) == 0 || tenant != "" && slices.Contains(d.Tenants, tenant):
		return ""
	case tenant == "":
		return "it may not see requests of clients without a tenant"
	}
	return "it may not see requests of the tenant " + tenant
}

// declared returns the function as this machine declares it; nil: it does not.
func (fn *function) declared() *api.Function {
	switch {
	case fn.placed != nil:
		return &fn.placed.spec
	case fn.near != nil:
		return &fn.near.spec
	}
	return nil
}

func (fn *function) regions() []string {
	if spec := fn.declared(); spec != nil {
		return spec.Regions
	}
	return nil
}

// byTenant reports whether some cluster may not see every tenant's requests.
func (f *state) byTenant() bool {
	for _, c := range f.clusters {
		if len(c.Tenants) > 0 || c.Front { // it has to choose as well
			return true
		}
	}
	return false
}

// group is waiting requests that the same clusters may see.
type group struct {
	waiting int
	tenants map[string]int
	tenant  string
}

func (f *state) groups(fn *function, d api.Demand) (list []group) {
	if len(d.Tenants) == 0 || !f.byTenant() {
		return []group{{waiting: d.Waiting, tenants: d.Tenants}}
	}
	at := map[string]int{}
	agents := sorted(f.sessions)
	left := d.Waiting
	for _, client := range sorted(d.Tenants) {
		tenant := peer.Tenant(client)
		seeing := slices.DeleteFunc(slices.Clone(agents), func(agent string) bool {
			return bars(f.sessions[agent].declared, fn.regions(), tenant) != ""
		})
		key := strings.Join(seeing, " ")
		i, ok := at[key]
		if !ok {
			i = len(list)
			at[key] = i
			list = append(list, group{tenants: map[string]int{}, tenant: tenant})
		}
		n := min(d.Tenants[client], left)
		left -= n
		list[i].waiting += n
		list[i].tenants[client] = n
	}
	return list
}

type part struct {
	waiting int
	tenants map[string]int
}

// divideDemand sends a function's demand to agents, and to this machine. Another front door's demand goes only to agents
// that are no front doors. [Front.flushEvents] must follow.
func (f *state) divideDemand(fn *function) {
	if !fn.far() {
		clear(fn.theirs)
	}
	list := make([]candidate, 0, len(fn.offers)+1)
	for agent, o := range fn.offers {
		list = append(list, candidate{
			Name: agent, State: o.state.State, Expected: o.state.Expected, Way: o.session.way,
			Running: o.state.Running, Slots: o.state.Running + o.state.Places, Concurrency: o.state.Concurrency, MaxScale: o.state.MaxScale,
			Cost: o.session.declared.Cost, Out: !o.usable() || f.yields(fn, o), Had: o.had,
		})
	}
	if fn.near != nil {
		list = append(list, fn.near.candidate(fn.runningHere()))
	}
	parts := map[string]part{}
	f.addParts(fn, parts, list, fn.demand)
	all := fn.demand
	list = slices.DeleteFunc(list, func(c candidate) bool {
		return c.Name == here && f.cfg.SharesNear || c.Name != here && fn.offers[c.Name].session.declared.Front
	})
	for _, d := range fn.theirs {
		f.addParts(fn, parts, list, d)
		all.Waiting += d.Waiting
		all.OldestAge = max(all.OldestAge, d.OldestAge)
		all.WaitingTokens += d.WaitingTokens
		all.Trace = cmp.Or(all.Trace, d.Trace)
		if d.LastRequest.After(all.LastRequest) {
			all.LastRequest = d.LastRequest
		}
	}
	if fn.near != nil {
		f.tellNear(fn, parts[here].waiting, all)
	}
	for agent, o := range fn.offers {
		d := api.Demand{Function: fn.name, Activator: "front/" + f.cfg.Name, LastRequest: all.LastRequest, At: fn.demand.At}
		d.Waiting = parts[agent].waiting
		if o.asked = d.Waiting; d.Waiting > 0 {
			if o.session.declared.Front {
				d.Tenants = parts[agent].tenants // it has to choose as well
			}
			d.OldestAge, d.Trace = all.OldestAge, all.Trace
			d.WaitingTokens = all.WaitingTokens * api.Tokens(d.Waiting) / api.Tokens(all.Waiting)
		} else if !o.had {
			continue
		}
		o.had = d.Waiting > 0
		o.session.demand[fn.name] = d
		o.session.wake.Ring()
	}
}

func (f *state) addParts(fn *function, parts map[string]part, list []candidate, d api.Demand) {
	for _, g := range f.groups(fn, d) {
		seeing := slices.DeleteFunc(slices.Clone(list), func(c candidate) bool {
			return c.Name != here && bars(fn.offers[c.Name].session.declared, fn.regions(), g.tenant) != ""
		})
		for _, p := range splitDemand(seeing, g.waiting) {
			sum := parts[p.cluster]
			sum.waiting += p.waiting
			if sum.tenants == nil {
				sum.tenants = map[string]int{}
			}
			for client, n := range g.tenants {
				sum.tenants[client] += n
			}
			parts[p.cluster] = sum
		}
	}
}
