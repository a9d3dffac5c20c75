package door

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// here is this machine's name among the clusters of a function. Agents' names contain a slash.
const here = "here"

// near is a function of this machine.
type near struct {
	spec      api.Function
	instances map[api.InstanceID]api.InstanceStatus
	loads     time.Duration // the duration of the last start; 0: unknown
	failed    *api.Error
	sent      int // its requests at agents
	asked     int // to take so many waiting requests
	told      api.Demand
	fresh     bool // send the demand again: one that is not repeated expires
}

// Near sets whether this machine has a function itself, which the activator calls local; empty: it has none. After another
// local name, observe the instances of this machine again.
func (f *Front) Near(spec api.Function, local api.FunctionName) {
	f.change(func() {
		if f.functions[spec.Name] == nil && local == "" {
			return
		}
		fn := f.function(spec.Name)
		switch {
		case local == "":
			fn.near, local = nil, fn.name
		case fn.near == nil:
			fn.near = &near{spec: spec, instances: map[api.InstanceID]api.InstanceStatus{}}
		default:
			fn.near.spec = spec
		}
		if fn.local != local {
			f.move(fn, local)
		}
		fn.spec, f.renamed = api.Function{}, true // told again if it is no longer near
	})
}

func (f *state) move(fn *function, local api.FunctionName) {
	for _, st := range fn.told {
		f.observe(st, api.Gone)
	}
	clear(fn.told)
	delete(f.names, fn.local)
	if fn.local = local; local == fn.name {
		return
	}
	f.names[local] = fn.name
	clear(fn.near.instances)
	if fn.spec.Name != "" { // only agents had it
		f.tell(func() { f.deps.Activator.RemoveFunction(fn.name) })
	}
}

// ObserveNear takes a report of an instance of this machine. It does not tell the activator.
func (f *Front) ObserveNear(st api.InstanceStatus) {
	f.mu.Lock()
	if fn := f.find(st.Function); fn != nil && fn.near != nil && !strings.HasSuffix(string(st.Endpoint), domain) {
		if n := fn.near; st.State == api.Gone {
			delete(n.instances, st.Instance)
		} else {
			n.instances[st.Instance] = st
		}
		fn.near.loads = cmp.Or(st.LoadTime, fn.near.loads)
		if fn.far() {
			f.divideDemand(fn)
		}
	}
	f.mu.Unlock()
	f.flushEvents()
}

// FailNear sets why a function of this machine can't start here; nil: it can.
func (f *Front) FailNear(local api.FunctionName, err *api.Error) {
	f.change(func() {
		fn := f.find(local)
		if fn == nil {
			f.tell(func() { f.deps.Activator.Fail(local, err) })
			return
		}
		if fn.near != nil {
			fn.near.failed = err
		}
		fn.failed = true
		f.markStale(fn)
	})
}

func (fn *function) runningHere() int { return max(fn.demand.Running-fn.near.sent, 0) }

func (n *near) candidate(running int) candidate {
	c := candidate{Name: here, Expected: n.loads, Running: running, Concurrency: max(n.spec.Concurrency, 1), MaxScale: n.spec.MaxScale, Out: n.failed != nil, Had: n.asked > 0}
	list := make([]api.InstanceStatus, 0, len(n.instances))
	for _, st := range n.instances {
		list = append(list, st)
		if st.Ready() {
			c.Slots += cmp.Or(st.Concurrency, c.Concurrency)
		}
	}
	state, expected := protocol.Soonest(list, time.Now())
	if c.State = state; state != api.Gone {
		c.Expected = expected
	}
	return c
}

func (f *state) tellNear(fn *function, waiting int, all api.Demand) {
	now, n := time.Now(), fn.near
	d := fn.demand
	d.Function, d.Activator, d.Tenants = fn.local, cmp.Or(d.Activator, "front/"+f.cfg.Name), nil
	d.Running, d.Waiting, d.Shared, d.WaitingTokens, d.OldestAge, d.Trace = fn.runningHere(), waiting, min(d.Shared, waiting), 0, 0, ""
	n.asked = waiting
	if waiting > 0 {
		d.WaitingTokens = all.WaitingTokens * api.Tokens(waiting) / api.Tokens(max(all.Waiting, waiting))
		d.OldestAge, d.Trace = all.OldestAge, all.Trace
		if fn.demand.Waiting > 0 {
			d.OldestAge = max(d.OldestAge, fn.oldest(now))
		}
	}
	if d.LastRequest.Before(all.LastRequest) {
		d.LastRequest = all.LastRequest
	}
	if !n.fresh && d.Waiting == n.told.Waiting && d.Running == n.told.Running && d.WaitingTokens == n.told.WaitingTokens {
		return
	}
	d.At, n.told, n.fresh = now, d, false
	f.out = append(f.out, api.NewEvent(api.EventDemand, "/activator/"+d.Activator, fn.local, d))
}

// countSent counts a request until left is called. The caller holds mu.
func (f *Front) countSent(n *near) (left func()) {
	n.sent++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		n.sent--
	})
}

type body struct {
	io.ReadCloser
	closed func()
}

func (b *body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}

func (n *near) describe(running int) string {
	switch c := n.candidate(running); {
	case n.failed != nil:
		return "it can't start here: " + n.failed.Message
	case c.State == api.Awake:
		return fmt.Sprintf("awake: %d of %d slots are taken", running, c.Slots)
	case c.State == api.Gone:
		return "not loaded" + awakeIn(c.Expected)
	default:
		return string(c.State) + awakeIn(c.Expected)
	}
}

func awakeIn(expected time.Duration) string {
	if expected <= 0 {
		return ""
	}
	return ", awake in about " + expected.Round(100*time.Millisecond).String()
}

// Offered returns the functions for other front doors, without those of other front doors: a request takes at most one hop
// between front doors.
func (f *Front) Offered() []api.Function {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []api.Function
	for _, name := range sorted(f.functions) {
		fn, own := f.functions[name], 0
		for _, o := range fn.offers {
			if !o.session.declared.Front {
				own += max(o.state.MaxScale, 1)
			}
		}
		switch {
		case own > 0:
			spec := f.merged(fn)
			spec.MaxScale = own
			list = append(list, spec)
		case fn.placed != nil && f.placeable(fn):
			list = append(list, fn.placed.spec.WithoutSecrets())
		default:
		}
	}
	return list
}

// Of restricts statistics to agents that are no front doors, and this machine's own instances unless they are shared.
func (f *Front) Of(name api.FunctionName, a api.Activity) api.Activity {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.functions[name]
	if fn == nil {
		return a
	}
	agents := map[api.InstanceID]bool{} // true: another front door
	for agent, o := range fn.offers {
		agents[instance(agent, name)] = o.session.declared.Front
	}
	shared := f.cfg.SharesNear && fn.near != nil
	var list []api.InstanceStatus
	for _, st := range a.Instances {
		if front, far := agents[st.Instance]; !front && (far || !shared) {
			list = append(list, st)
		}
	}
	if a.Instances = list; shared {
		a.Running = fn.near.sent
	}
	return a
}
