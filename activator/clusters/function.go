package clusters

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/clusters/choose"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/exchange"
)

// function is one function that agents serve. The mutex of the Front guards it.
type function struct {
	name   api.FunctionName
	offers map[string]*offer     // by agent
	spec   api.Function          // as the activator was told; empty: it was not
	failed bool                  // the activator was told that it can't start
	demand api.Demand            // the last of the activator
	theirs map[string]api.Demand // the last of other front doors, by who says so
	forget *time.Timer           // nil: it is served
}

// offer is a function at one agent.
type offer struct {
	session *session
	state   exchange.Function
	had     bool // it has demand
}

// offered takes in the state of a function at an agent; fn is nil where nothing comes of it.
func (f *Front) offered(s *session, state exchange.Function) (tell []func(), fn *function) {
	if !s.declared.allows(state.Name) {
		if state.Model != "" {
			f.log.Warn("a cluster offers a function that it may not serve", "cluster", s.hello.Cluster, "function", state.Name)
			s.refused = append(s.refused, exchange.Refusal{Function: state.Name, Reason: "not among the functions that the front door declares for this cluster"})
			s.nudge()
		}
		return nil, nil
	}
	fn = f.functions[state.Name]
	if fn == nil {
		if state.Model == "" {
			return nil, nil
		}
		fn = &function{name: state.Name, offers: map[string]*offer{}}
		f.functions[state.Name] = fn
	}
	old := fn.offers[s.agent()]
	switch {
	case old != nil && old.session == s && state.Seq <= old.state.Seq:
		return nil, nil
	case state.Model == "":
		if old == nil {
			return nil, nil
		}
		delete(fn.offers, s.agent())
		return []func(){f.observe(old, api.Gone)}, fn
	}
	o := &offer{session: s, state: state, had: old != nil && old.had}
	fn.offers[s.agent()] = o
	return []func(){f.observe(o, "")}, fn
}

// notOffered removes what an earlier session of the agent offered and s, which has said all, does not.
func (f *Front) notOffered(s *session) (tell []func(), fns []*function) {
	for _, fn := range f.functions {
		if o := fn.offers[s.agent()]; o != nil && o.session != s {
			delete(fn.offers, s.agent())
			tell, fns = append(tell, f.observe(o, api.Gone)), append(fns, fn)
		}
	}
	return tell, fns
}

// observe tells the activator of a function at an agent, as of an instance. as is the state that it has whatever the agent said; empty: what it said.
func (f *Front) observe(o *offer, as api.State) func() {
	state, s := o.state, o.session
	f.seq++
	st := api.InstanceStatus{
		Instance: api.InstanceID(s.agent() + "/" + string(state.Name)), Function: state.Name, State: cmp.Or(as, state.State), Seq: f.seq, Since: time.Now(),
		Endpoint: endpoint(s.agent(), state.Name), Concurrency: state.Places, Adapters: state.Adapters,
	}
	if st.State == api.Awake && (state.Places == 0 || s.leaving) {
		st.State = api.Draining // it finishes what it has, and takes nothing new
	}
	return func() { f.deps.Activator.ObserveInstance(st) }
}

// sync tells the activator what the offers make of the function, and divides its demand anew.
func (f *Front) sync(fn *function) (tell []func()) {
	if f.deps.Changed != nil {
		defer func() { tell = append(tell, func() { f.deps.Changed(fn.name) }) }()
	}
	if len(fn.offers) == 0 {
		if fn.forget == nil {
			fn.forget = time.AfterFunc(f.cfg.Keep, func() { f.drop(fn) })
		}
		return nil
	}
	if fn.forget != nil {
		fn.forget.Stop()
		fn.forget = nil
	}
	if spec := fn.merged(); !f.near[fn.name] && !reflect.DeepEqual(spec, fn.spec) {
		fn.spec = spec
		tell = append(tell, func() { f.deps.Activator.PutFunction(spec) })
	}
	if failure := fn.failure(); !f.near[fn.name] && (failure != nil || fn.failed) {
		fn.failed = failure != nil
		tell = append(tell, func() { f.deps.Activator.Fail(fn.name, failure) })
	}
	f.divide(fn)
	return tell
}

// drop forgets a function that nobody has served for long.
func (f *Front) drop(fn *function) {
	f.change(func() []func() {
		if len(fn.offers) > 0 || f.functions[fn.name] != fn {
			return nil
		}
		delete(f.functions, fn.name)
		if f.near[fn.name] {
			return nil
		}
		return []func(){func() { f.deps.Activator.RemoveFunction(fn.name) }}
	})
}

// merged is the function as clients see it: the names that its agents have for it. The agent whose name comes first says what the
// others differ in.
func (fn *function) merged() api.Function {
	spec := api.Function{Name: fn.name}
	for _, agent := range slices.Sorted(maps.Keys(fn.offers)) {
		o := fn.offers[agent].state
		if spec.Model == "" {
			spec.Model, spec.Runtime.Kind, spec.Concurrency = o.Model, o.Kind, max(o.Concurrency, 1)
		}
		for _, alias := range o.Aliases {
			if !slices.Contains(spec.Aliases, alias) {
				spec.Aliases = append(spec.Aliases, alias)
			}
		}
	}
	return spec
}

// failure says why no agent can start the function; nil: one can.
func (fn *function) failure() *api.Error {
	var last *exchange.Failure
	for _, o := range fn.offers {
		if o.state.Failed == nil || o.state.State == api.Awake {
			return nil
		}
		last = o.state.Failed
	}
	if last == nil {
		return nil
	}
	e := api.Errorf(last.Status, last.Code, "%s", last.Message)
	e.RetryAfter = last.RetryAfter
	return e
}

// Emit implements [api.Emitter]: the activator's events come here. The demand for functions of agents goes to
// agents; everything that is about a function of this machine goes to its own autoscaler.
func (f *Front) Emit(e api.Event) {
	name := api.FunctionName(e.Subject)
	f.mu.Lock()
	fn, near := f.functions[name], f.near[name]
	var demand api.Demand
	if fn != nil && e.Type == api.EventDemand && json.Unmarshal(e.Data, &demand) == nil {
		fn.demand = demand
		f.divide(fn)
	}
	f.mu.Unlock()
	if (fn == nil || near) && f.deps.Near != nil {
		f.deps.Near.Emit(e)
	}
}

// divide sends the demand of a function to those of its agents who should have it: that of this front door to any, that of
// another to those that are no front doors. The caller holds mu.
func (f *Front) divide(fn *function) {
	list := make([]choose.Cluster, 0, len(fn.offers))
	for agent, o := range fn.offers {
		list = append(list, choose.Cluster{
			Name: agent, State: o.state.State, Expected: o.state.Expected, Way: o.session.way,
			Running: o.state.Running, Slots: o.state.Running + o.state.Places, Concurrency: o.state.Concurrency, MaxScale: o.state.MaxScale,
			Cost: o.session.declared.Cost, Out: o.session.leaving || o.state.Failed != nil, Had: o.had,
		})
	}
	parts := map[string]int{}
	for _, p := range choose.Split(list, fn.demand.Waiting, 0) {
		parts[p.Cluster] += p.Waiting
	}
	all := fn.demand
	for _, d := range fn.theirs {
		all.Waiting += d.Waiting
		all.OldestAge = max(all.OldestAge, d.OldestAge)
		all.WaitingTokens += d.WaitingTokens
		all.Trace = cmp.Or(all.Trace, d.Trace)
		if d.LastRequest.After(all.LastRequest) {
			all.LastRequest = d.LastRequest
		}
	}
	near := slices.DeleteFunc(list, func(c choose.Cluster) bool { return fn.offers[c.Name].session.declared.Front })
	for _, p := range choose.Split(near, all.Waiting-fn.demand.Waiting, 0) {
		parts[p.Cluster] += p.Waiting
	}
	for agent, o := range fn.offers {
		d := api.Demand{Function: fn.name, Activator: "front/" + f.cfg.Name, LastRequest: all.LastRequest, At: fn.demand.At}
		if d.Waiting = parts[agent]; d.Waiting > 0 {
			d.OldestAge, d.Trace = all.OldestAge, all.Trace
			d.WaitingTokens = all.WaitingTokens * api.Tokens(d.Waiting) / api.Tokens(all.Waiting)
		} else if !o.had { // it was told that nothing is wanted
			continue
		}
		o.had = d.Waiting > 0
		o.session.demand[fn.name] = d
		o.session.nudge()
	}
}
