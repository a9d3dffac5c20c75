package door

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// function is one function that agents serve. The Front's mutex guards it.
type function struct {
	name   api.FunctionName
	offers map[string]*offer       // by agent
	spec   api.Function            // as last told to the activator; empty: not told
	failed bool                    // the activator was told that it can't start
	demand api.Demand              // the activator's last demand
	theirs map[string]api.Demand   // the last demand of other front doors, by sender
	forget *time.Timer             // nil: it is served
	lost   string                  // the lost cluster that was the last to have it; empty: the cluster reported that it no longer has it
	away   *api.Error              // why requests are refused: that cluster has not returned; nil: they are not
	placed *placement              // nil: it is not this front door's to place
	wakes  wakes                   // the last wakes that requests were held here for
	sweep  *time.Timer             // removes it when it is unused; nil: never armed
	born   uint64                  // a later function has a greater one
	claims map[api.ModelName]claim // by the names that it may have
}

// offer is a function at one agent.
type offer struct {
	session *session
	state   protocol.Function
	since   time.Time // when its state began
	had     bool      // it had demand
	asked   int       // how many waiting requests it was asked to take
	// unloaded is when the last instance there was unloaded; zero: one is loaded.
	unloaded time.Time
	removing uint64 // the order that told the agent to remove it; 0: none
}

// offered applies the state of a function at an agent. fn is nil if there is no effect; renamed reports that its
// names have changed.
func (f *Front) offered(s *session, state protocol.Function) (fn *function, renamed bool, tell []func()) {
	if !s.declared.allows(state.Name) {
		was := s.denied[state.Name]
		if state.Model == "" {
			delete(s.denied, state.Name)
		} else if len(s.denied) < protocol.MaxFunctions {
			s.denied[state.Name] = true
		}
		return nil, was != s.denied[state.Name], nil
	}
	fn = f.functions[state.Name]
	if fn == nil {
		if state.Model == "" {
			return nil, false, nil
		}
		own := f.near[state.Name]
		fn = f.newFunction(state.Name)
		fn.failed = own != nil && own.failed != nil
	}
	old := fn.offers[s.agent()]
	switch {
	case old != nil && old.session == s && state.Seq <= old.state.Seq:
		return nil, false, nil
	case state.Model == "":
		if old == nil {
			return nil, false, nil
		}
		delete(fn.offers, s.agent())
		s.offers--
		fn.lost = ""
		return fn, true, []func(){f.observe(old, api.Gone)}
	}
	if old == nil {
		if s.offers++; s.offers > protocol.MaxFunctions {
			f.shutOut(s, fmt.Sprintf("it offers more than %d functions", protocol.MaxFunctions))
			return fn, false, nil
		}
	}
	o := &offer{session: s, state: state, since: time.Now()}
	if old != nil {
		o.had, o.asked = old.had, old.asked
		if old.state.State == state.State {
			o.since = old.since
		}
	}
	if state.State == api.Gone && state.Running == 0 && state.Waiting == 0 {
		if o.unloaded = time.Now(); old != nil && !old.unloaded.IsZero() {
			o.unloaded = old.unloaded
		}
	}
	fn.offers[s.agent()] = o
	fn.placed.came(s, state)
	return fn, old == nil || !slices.Equal(old.wanted(), o.wanted()), nil
}

// newFunction adds a function. The caller holds mu.
func (f *Front) newFunction(name api.FunctionName) *function {
	f.seq++
	fn := &function{name: name, offers: map[string]*offer{}, born: f.seq}
	f.functions[name] = fn
	return fn
}

// usable reports whether the agent can have it awake.
func (o *offer) usable() bool { return !o.session.leaving && o.removing == 0 && o.state.Failed == nil }

// notOffered removes the offers of an earlier session of the agent that s, whose report is complete, has not
// repeated.
func (f *Front) notOffered(s *session) (tell []func(), fns []*function) {
	for _, fn := range f.functions {
		if o := fn.offers[s.agent()]; o != nil && o.session != s {
			delete(fn.offers, s.agent())
			fn.lost = ""
			tell, fns = append(tell, f.observe(o, api.Gone)), append(fns, fn)
		}
	}
	return tell, fns
}

// instance returns the activator's instance ID of a function at an agent.
func instance(agent string, name api.FunctionName) api.InstanceID {
	return api.InstanceID(agent + "/" + string(name))
}

// observe returns the report of a function at an agent to the activator. as overrides the reported state; empty: it
// does not.
func (f *Front) observe(o *offer, as api.State) func() {
	f.seq++
	st := o.status(as, f.seq)
	st.Adapters = slices.DeleteFunc(slices.Clone(st.Adapters), func(n api.ModelName) bool { return !f.has(st.Function, n) })
	return func() { f.deps.Activator.ObserveInstance(st) }
}

// status returns a function at an agent as an instance's status.
func (o *offer) status(as api.State, seq uint64) api.InstanceStatus {
	state, s := o.state, o.session
	st := api.InstanceStatus{
		Instance: instance(s.agent(), state.Name), Function: state.Name, State: cmp.Or(as, state.State), Seq: seq, Since: o.since,
		Endpoint: endpoint(s.agent(), state.Name), Concurrency: state.Places, Adapters: state.Adapters, Way: s.way, Cost: s.declared.Cost,
	}
	if st.State == api.Awake && (state.Places == 0 || s.leaving) {
		st.State = api.Draining // it finishes its requests, and accepts no new ones
	}
	return st
}

// sync updates the function in the activator from its offers, and divides its demand again.
func (f *Front) sync(fn *function) (tell []func()) {
	defer func() { tell = append(tell, func() { f.deps.Changed(fn.name) }) }()
	f.armSweep(fn)
	if fn.placed != nil {
		f.divide(fn)
		return nil
	}
	if failure := f.failure(fn); len(fn.offers) > 0 || f.isNear(fn.name) {
		tell = f.fail(fn, failure)
	}
	if len(fn.offers) == 0 {
		f.divide(fn)
		if fn.forget == nil {
			fn.forget = time.AfterFunc(f.cfg.Keep, func() { f.drop(fn) })
		}
		return tell
	}
	if fn.forget != nil {
		fn.forget.Stop()
		fn.forget, fn.away = nil, nil
	}
	if spec := f.merged(fn); !f.isNear(fn.name) && !reflect.DeepEqual(spec, fn.spec) {
		fn.spec = spec
		tell = append([]func(){func() { f.deps.Activator.PutFunction(spec) }}, tell...)
	}
	f.divide(fn)
	return tell
}

// drop removes a function that has long been unserved. If its cluster was lost, requests are refused until it
// returns. The number of functions kept this way is limited to what one agent may offer.
func (f *Front) drop(fn *function) {
	f.change(func() []func() {
		if len(fn.offers) > 0 || fn.placed != nil || f.functions[fn.name] != fn {
			return nil
		}
		away := 0
		for _, o := range f.functions {
			if o.away != nil {
				away++
			}
		}
		if f.isNear(fn.name) || fn.lost == "" || away >= protocol.MaxFunctions {
			return append(f.remove(fn), f.settle()...)
		}
		fn.away = api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "%s is in the cluster %s, which this front door has lost: it is served again once that has joined", fn.name, fn.lost).WithRetryAfter(retryAway)
		return f.fail(fn, fn.away)
	})
}

// retryAway is the Retry-After for a function in a lost cluster.
const retryAway = 5 * time.Second

// remove removes a function. The caller holds mu.
func (f *Front) remove(fn *function) []func() {
	if fn.placed != nil || f.functions[fn.name] != fn {
		return nil
	}
	if fn.forget != nil {
		fn.forget.Stop()
	}
	delete(f.functions, fn.name)
	if f.isNear(fn.name) {
		return nil
	}
	return []func(){func() { f.deps.Activator.RemoveFunction(fn.name) }}
}

// merged returns the function as clients see it, with the names that its agents give it and that it owns. If the
// agents differ in other fields, the agent that sorts first wins. A function without another name is served by its
// full one. The caller holds mu.
func (f *Front) merged(fn *function) api.Function {
	spec := api.Function{Name: fn.name, FullNameOnly: !f.has(fn.name, api.ModelName(fn.name.Name()))}
	for _, agent := range slices.Sorted(maps.Keys(fn.offers)) {
		o := fn.offers[agent].state
		if spec.Concurrency == 0 {
			spec.Runtime.Kind, spec.Concurrency = o.Kind, max(o.Concurrency, 1)
		}
		if spec.Model == "" && f.has(fn.name, o.Model) {
			spec.Model = o.Model
		}
		for _, alias := range o.Aliases {
			if !slices.Contains(spec.Aliases, alias) && f.has(fn.name, alias) {
				spec.Aliases = append(spec.Aliases, alias)
			}
		}
	}
	spec.Model = cmp.Or(spec.Model, api.ModelName(fn.name))
	return spec
}

// failure returns why no agent can start the function; nil: one can.
func (fn *function) failure() *api.Error {
	var last *protocol.Failure
	for _, o := range fn.offers {
		if o.state.Failed == nil || o.state.State == api.Awake {
			return nil
		}
		last = o.state.Failed
	}
	if last == nil {
		return nil
	}
	return last.AsError()
}

// Emit implements [api.Emitter] for the activator's events. The demand for functions of agents goes to agents; events
// of this machine's functions go to its own autoscaler.
func (f *Front) Emit(e api.Event) {
	name := api.FunctionName(e.Subject)
	f.mu.Lock()
	fn := f.functions[name]
	var demand api.Demand
	divided := fn != nil && e.Type == api.EventDemand && json.Unmarshal(e.Data, &demand) == nil
	if divided {
		fn.demand = demand
		f.near[name].renewed()
		f.divide(fn)
	}
	if far := fn != nil && f.woken(fn, e); !far && !divided && (fn == nil || f.isNear(name)) {
		f.out = append(f.out, e)
	}
	f.mu.Unlock()
	f.passOn()
}

// divide sends a function's demand to the chosen agents, and to this machine if it has the function itself. This
// front door's demand may go to any agent; another front door's, only to those that are no front doors. The caller
// holds mu, and calls [Front.passOn] after it.
func (f *Front) divide(fn *function) {
	f.reconsider(fn)
	list := make([]candidate, 0, len(fn.offers))
	for agent, o := range fn.offers {
		list = append(list, candidate{
			Name: agent, State: o.state.State, Expected: o.state.Expected, Way: o.session.way,
			Running: o.state.Running, Slots: o.state.Running + o.state.Places, Concurrency: o.state.Concurrency, MaxScale: o.state.MaxScale,
			Cost: o.session.declared.Cost, Out: !o.usable() || f.later(fn, o), Had: o.had,
		})
	}
	own := f.near[fn.name]
	if own != nil {
		list = append(list, own.cluster(own.runs(fn)))
	}
	parts := map[string]part{}
	f.share(fn, parts, list, fn.demand)
	all := fn.demand
	list = slices.DeleteFunc(list, func(c candidate) bool {
		return c.Name == here && f.cfg.SharesNear || c.Name != here && fn.offers[c.Name].session.declared.Front
	})
	for _, d := range fn.theirs {
		f.share(fn, parts, list, d)
		all.Waiting += d.Waiting
		all.OldestAge = max(all.OldestAge, d.OldestAge)
		all.WaitingTokens += d.WaitingTokens
		all.Trace = cmp.Or(all.Trace, d.Trace)
		if d.LastRequest.After(all.LastRequest) {
			all.LastRequest = d.LastRequest
		}
	}
	if own != nil {
		f.tellNear(fn, own, parts[here].waiting, all)
	}
	for agent, o := range fn.offers {
		d := api.Demand{Function: fn.name, Activator: "front/" + f.cfg.Name, LastRequest: all.LastRequest, At: fn.demand.At}
		d.Waiting = parts[agent].waiting
		if o.asked = d.Waiting; d.Waiting > 0 {
			if o.session.declared.Front {
				d.Tenants = parts[agent].tenants // a front door has to choose as well
			}
			d.OldestAge, d.Trace = all.OldestAge, all.Trace
			d.WaitingTokens = all.WaitingTokens * api.Tokens(d.Waiting) / api.Tokens(all.Waiting)
		} else if !o.had { // it already has no demand
			continue
		}
		o.had = d.Waiting > 0
		o.session.demand[fn.name] = d
		o.session.nudge()
	}
}

// part is the demand for one agent.
type part struct {
	waiting int
	tenants map[string]int
}

// share adds a demand's division among agents to parts; requests go only to agents that may see them. The caller
// holds mu.
func (f *Front) share(fn *function, parts map[string]part, list []candidate, d api.Demand) {
	regions := f.regions(fn)
	for _, g := range f.groups(fn, d) {
		seeing := slices.DeleteFunc(slices.Clone(list), func(c candidate) bool {
			return c.Name != here && bars(fn.offers[c.Name].session.declared, regions, g.tenant) != ""
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
