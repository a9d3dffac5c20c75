package door

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// To another front door, a front door is an agent: it dials, offers its own agents' functions, and forwards the
// requests that it gets. It does not offer the functions of other front doors, so a request takes at most one hop
// between front doors.

// Offered returns the functions that agents of this front door serve or may create, without other front doors.
func (f *Front) Offered() []api.Function {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []api.Function
	for _, fn := range f.functions {
		spec, own := api.Function{}, 0
		for _, o := range fn.offers {
			if !o.session.declared.Front {
				spec, own = f.merged(fn), own+max(o.state.MaxScale, 1)
			}
		}
		switch {
		case own > 0:
			spec.MaxScale = own
			list = append(list, spec)
		case fn.placed != nil && f.placeable(fn):
			spec = fn.placed.spec.WithoutSecrets()
			list = append(list, spec)
		default:
		}
	}
	slices.SortFunc(list, func(a, b api.Function) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return list
}

// Of restricts an activator's statistics of a function to agents of this front door, without other front doors.
func (f *Front) Of(a api.Activity) api.Activity {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.Instances = slices.DeleteFunc(slices.Clone(a.Instances), func(st api.InstanceStatus) bool {
		fn := f.functions[st.Function]
		if fn == nil {
			return false
		}
		o := fn.offers[strings.TrimSuffix(string(st.Instance), "/"+string(st.Function))]
		return o != nil && o.session.declared.Front
	})
	return a
}

// Sent returns how many requests of this machine's own function are at agents now.
func (f *Front) Sent(name api.FunctionName) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.near[name]; n != nil {
		return n.sent
	}
	return 0
}

// IsAgent reports whether an instance is a function at an agent.
func (f *Front) IsAgent(st api.InstanceStatus) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.functions[st.Function]
	return fn != nil && fn.offers[strings.TrimSuffix(string(st.Instance), "/"+string(st.Function))] != nil
}

// EmitOf receives another front door's demand for functions of this one's agents. Demand for a function that only
// this machine has goes to its own autoscaler.
func (f *Front) EmitOf(e api.Event) {
	var demand api.Demand
	if e.Type != api.EventDemand || json.Unmarshal(e.Data, &demand) != nil {
		return
	}
	defer f.passOn()
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.functions[demand.Function]
	if fn == nil && f.isNear(demand.Function) && !f.cfg.SharesNear {
		f.out = append(f.out, e)
	}
	if fn != nil {
		if fn.theirs == nil {
			fn.theirs = map[string]api.Demand{}
		}
		if fn.theirs[demand.Activator] = demand; demand.Waiting == 0 {
			delete(fn.theirs, demand.Activator)
		}
		f.near[fn.name].renewed()
		f.divide(fn)
	}
}
