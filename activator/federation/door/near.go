package door

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// If agents also have a function of this machine, the machine is one more place for its requests: the nearest. Its
// own autoscaler gets the demand for the requests that stay here, like a cluster, and not for those that go
// elsewhere.

// here is this machine's name among the clusters of a function. Agents' names contain a slash.
const here = "here"

// near is a function of this machine. The Front's mutex guards it.
type near struct {
	spec      api.Function
	instances map[api.InstanceID]api.InstanceStatus // without those that are gone
	loads     time.Duration                         // the duration of the last start; 0: unknown
	failed    *api.Error                            // why it can't start; nil: it can
	sent      int                                   // the number of its requests at agents
	asked     int                                   // how many waiting requests it was asked to take
	told      api.Demand                            // the last demand sent to its autoscaler
	fresh     bool                                  // send the demand again, even if it has not changed
}

// Near sets whether this machine has a function itself. Agents that have it too are then further instances, and the
// demand is divided between them and the machine's own autoscaler.
func (f *Front) Near(spec api.Function, has bool) {
	f.change(func() (tell []func()) {
		switch n := f.near[spec.Name]; {
		case !has:
			delete(f.near, spec.Name)
		case n == nil:
			f.near[spec.Name] = &near{spec: spec, instances: map[api.InstanceID]api.InstanceStatus{}}
		default:
			n.spec = spec
		}
		if fn := f.functions[spec.Name]; fn != nil {
			fn.spec = api.Function{} // sent again if it is no longer near
			tell = f.sync(fn)
		}
		return append(f.settle(), tell...)
	})
}

// ObserveNear applies a report of an instance of this machine. It does not tell the activator.
func (f *Front) ObserveNear(st api.InstanceStatus) {
	f.mu.Lock()
	if n := f.near[st.Function]; n != nil {
		if st.State == api.Gone {
			delete(n.instances, st.Instance)
		} else {
			n.instances[st.Instance] = st
		}
		n.loads = cmp.Or(st.LoadTime, n.loads)
		if fn := f.functions[st.Function]; fn != nil {
			f.divide(fn)
		}
	}
	f.mu.Unlock()
	f.passOn()
}

// FailNear sets why a function of this machine can't start here; nil: it can. Its requests are refused if no agent
// can have it either.
func (f *Front) FailNear(name api.FunctionName, err *api.Error) {
	f.change(func() []func() {
		fn, n := f.functions[name], f.near[name]
		if n != nil {
			n.failed = err
		}
		if fn == nil {
			return []func(){func() { f.deps.Activator.Fail(name, err) }}
		}
		f.divide(fn)
		fn.failed = true // tell it again in any case
		return f.fail(fn, f.failure(fn))
	})
}

// Moved calls swap, which gives the function another name in the activator, and then reports the agents that have it
// again. Observe the instances of this machine again afterwards.
func (f *Front) Moved(name api.FunctionName, swap func()) {
	f.change(func() (tell []func()) {
		if n := f.near[name]; n != nil {
			clear(n.instances)
		}
		fn := f.functions[name]
		if fn == nil {
			return []func(){swap}
		}
		for _, o := range fn.offers {
			tell = append(tell, f.observe(o, api.Gone))
		}
		tell = append(tell, swap)
		for _, o := range fn.offers {
			tell = append(tell, f.observe(o, ""))
		}
		return append(tell, func() { f.deps.Changed(name) }) // a reader in between saw none of them
	})
}

// failure returns why no cluster can start a function; nil: one can. The caller holds mu.
func (f *Front) failure(fn *function) *api.Error {
	n := f.near[fn.name]
	switch {
	case n == nil:
		return fn.failure()
	case n.failed != nil && (len(fn.offers) == 0 || fn.failure() != nil):
		return n.failed
	}
	return nil
}

// cluster returns this machine as one of the function's clusters; running is the number of requests in its instances.
func (n *near) cluster(running int) candidate {
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

// runs returns how many of a function's requests are in this machine's instances.
func (n *near) runs(fn *function) int { return max(fn.demand.Running-n.sent, 0) }

// tellNear sends this machine's autoscaler its part of a function's demand, if that has changed. The caller holds mu,
// and calls [Front.passOn] after it.
func (f *Front) tellNear(fn *function, n *near, waiting int, all api.Demand) {
	now := time.Now()
	d := fn.demand
	d.Function, d.Activator, d.Tenants = fn.name, cmp.Or(d.Activator, "front/"+f.cfg.Name), nil
	d.Running, d.Waiting, d.Shared, d.WaitingTokens, d.OldestAge, d.Trace = n.runs(fn), waiting, min(d.Shared, waiting), 0, 0, ""
	n.asked = waiting
	if waiting > 0 {
		d.WaitingTokens = all.WaitingTokens * api.Tokens(waiting) / api.Tokens(max(all.Waiting, waiting))
		d.OldestAge, d.Trace = all.OldestAge, all.Trace
		if fn.demand.Waiting > 0 {
			d.OldestAge = max(d.OldestAge, f.oldest(fn, now))
		}
	}
	if d.LastRequest.Before(all.LastRequest) {
		d.LastRequest = all.LastRequest
	}
	said := n.told
	if !n.fresh && d.Waiting == said.Waiting && d.Running == said.Running && d.WaitingTokens == said.WaitingTokens {
		return
	}
	d.At, n.told, n.fresh = now, d, false
	f.out = append(f.out, api.NewEvent(api.EventDemand, "/activator/"+d.Activator, fn.name, d))
}

// passOn delivers the pending events to this machine's components, in order. If another goroutine already does, it
// returns at once.
func (f *Front) passOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.passing {
		return
	}
	f.passing = true
	for len(f.out) > 0 {
		out := f.out
		f.out = nil
		f.mu.Unlock()
		for _, e := range out {
			if f.deps.Near != nil {
				f.deps.Near.Emit(e)
			}
		}
		f.mu.Lock()
	}
	f.passing = false
}

// renewed marks the demand to be sent again: demand that is not repeated expires. It does nothing for nil.
func (n *near) renewed() {
	if n != nil {
		n.fresh = true
	}
}

// away counts a request that goes to an agent until left is called, which may be repeated. For nil it counts nothing.
// The caller holds mu.
func (n *near) away(f *Front) (left func()) {
	if n == nil {
		return nil
	}
	n.sent++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		n.sent--
	})
}

// counted calls left when the answer has ended.
func counted(resp *http.Response, left func()) *http.Response {
	if left == nil {
		return resp
	}
	if resp == nil {
		left()
		return nil
	}
	resp.Body = &body{resp.Body, left}
	return resp
}

// body calls closed when it is closed.
type body struct {
	io.ReadCloser
	closed func()
}

// Close implements [io.Closer].
func (b *body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}

// describe returns the function's state on this machine; running is the number of its requests here.
func (n *near) describe(running int) string {
	switch c := n.cluster(running); {
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

// awakeIn formats the expected time until an instance is awake; empty: unknown.
func awakeIn(expected time.Duration) string {
	if expected <= 0 {
		return ""
	}
	return ", awake in about " + expected.Round(100*time.Millisecond).String()
}
