package door

import (
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// Timeouts of a placement.
const (
	// applyTimeout is how long an agent may take to create a function; after that another one is asked.
	applyTimeout = 30 * time.Second
	// refusedFor is how long an agent is not asked again after it refused a function.
	refusedFor = 30 * time.Second
	// retryPlace is the Retry-After for a function that fits nowhere.
	retryPlace = 5 * time.Second
)

// placement is a function to be created in a matching cluster. The steps of its life:
//
//  1. Requests wait, and no agent that can serve them has it ([Front.consider]).
//  2. The manifest is sent to the agent that ranks first among its [Front.candidates].
//  3. If the agent creates it, it gets the demand. If it refuses, the next one is asked.
//  4. Without another agent the requests are refused, with all reasons; a cluster that has just gone is waited for.
//  5. After long disuse the agent is told to remove it ([Front.removeIdle]).
//
// The Front's mutex guards it. The methods do nothing for nil.
type placement struct {
	spec     api.Function
	selector selector
	sent     map[string]*order    // by agent: unanswered, or answered and not offered yet
	refused  map[string]*refusal  // by agent
	began    map[string]time.Time // by agent: when it was sent
	took     map[string]time.Duration
	check    *time.Timer // runs consider
	at       time.Time   // when check fires; zero: not armed
}

// lost is a cluster whose last session has ended.
type lost struct {
	session *session
	at      time.Time
}

// order is a manifest that was sent.
type order struct {
	session *session
	number  uint64
	until   time.Time
}

// refusal is an agent's refusal to create a function.
type refusal struct {
	err   *api.Error
	until time.Time
}

// Place declares a function to run in a cluster that its selector matches. It is known from now on, and created on
// demand. It replaces an earlier placement of the same function, also where that was created.
func (f *Front) Place(spec api.Function) error {
	chosen, err := parseSelector(spec.Clusters)
	if err != nil {
		return api.BadRequest("clusters", "the annotation %s: %v", api.AnnotationClusters, err)
	}
	if len(spec.Manifest) == 0 || len(spec.Manifest) > protocol.MaxManifest {
		return api.BadRequest("manifest", "the manifest of %s has %d bytes: want 1 to %d", spec.Name, len(spec.Manifest), protocol.MaxManifest)
	}
	f.change(func() (tell []func()) {
		fn := f.functions[spec.Name]
		if fn == nil {
			fn = f.newFunction(spec.Name)
		}
		changed := fn.placed != nil && fn.placed.spec.Manifest != spec.Manifest
		fn.placed.stop()
		fn.placed = &placement{spec: spec, selector: chosen, sent: map[string]*order{}, refused: map[string]*refusal{}, began: map[string]time.Time{}, took: map[string]time.Duration{}}
		fn.placed.check = time.AfterFunc(time.Hour, func() { f.consider(fn) })
		fn.placed.check.Stop()
		for _, o := range fn.offers {
			if changed && o.state.Applied {
				f.send(fn, o.session)
			}
		}
		fn.spec, fn.failed = spec, false
		return append(append([]func(){func() { f.deps.Activator.PutFunction(spec) }}, f.sync(fn)...), f.settle()...)
	})
	return nil
}

// Unplace removes a placed function, also where this front door had it created. It returns false if it was not
// placed.
func (f *Front) Unplace(name api.FunctionName) (was bool) {
	f.change(func() (tell []func()) {
		fn := f.functions[name]
		if fn == nil || fn.placed == nil {
			return nil
		}
		was = true
		fn.placed.stop()
		fn.placed, fn.spec = nil, api.Function{}
		for _, o := range fn.offers {
			f.removeAt(fn, o)
		}
		if len(fn.offers) > 0 {
			return append(f.settle(), f.sync(fn)...)
		}
		delete(f.functions, name)
		return append([]func(){func() { f.deps.Activator.RemoveFunction(name) }}, f.settle()...)
	})
	return was
}

func (p *placement) stop() {
	if p != nil {
		p.check.Stop()
	}
}

// again schedules consider for a time, or earlier. The caller holds mu.
func (p *placement) again(at time.Time) {
	if p.at.IsZero() || at.Before(p.at) {
		p.at = at
		p.check.Reset(time.Until(at))
	}
}

// came records that an agent offers it.
func (p *placement) came(s *session, state protocol.Function) {
	if p == nil {
		return
	}
	if o := p.sent[s.agent()]; o != nil && o.session == s {
		delete(p.sent, s.agent())
	}
	if began, ok := p.began[s.agent()]; ok && state.State == api.Awake {
		p.took[s.hello.Cluster] = time.Since(began)
		delete(p.began, s.agent())
	}
}

// reconsider schedules consider for a placed function now. The caller holds mu.
func (f *Front) reconsider(fn *function) {
	if fn.placed != nil && fn.waiting() > 0 {
		fn.placed.again(time.Now())
	}
}

// waiting returns the number of its waiting requests, here and at other front doors.
func (fn *function) waiting() int {
	n := fn.demand.Waiting
	for _, d := range fn.theirs {
		n += d.Waiting
	}
	return n
}

// consider takes the next step of a placement.
func (f *Front) consider(fn *function) {
	f.change(func() []func() {
		p := fn.placed
		if p == nil || f.functions[fn.name] != fn {
			return nil
		}
		p.at = time.Time{}
		if fn.waiting() == 0 {
			return nil
		}
		groups := f.unserved(fn)
		if len(groups) == 0 {
			return f.fail(fn, nil)
		}
		now := time.Now()
		if until := f.pending(p, now); !until.IsZero() {
			p.again(until)
			return nil
		}
		var why []string
		for _, g := range groups {
			var candidates []candidate
			candidates, why = f.candidates(fn, g.tenant, now)
			if list := orderCandidates(candidates); len(list) > 0 {
				s := f.sessions[list[0].Name]
				f.send(fn, s)
				f.log.Info("a cluster is asked to create a function", "function", fn.name, "cluster", s.hello.Cluster, "agent", s.hello.Agent)
				p.again(now.Add(applyTimeout))
				return nil
			}
			if until := f.mayCome(fn, g.tenant, now); !until.IsZero() {
				p.again(until)
				return nil
			}
		}
		if f.served(fn) {
			return nil // new requests from barred clients are refused ([Front.Bars]), and waiting ones wait for as long as they may
		}
		return f.fail(fn, fn.nowhere(why))
	})
}

// served reports whether a cluster can have the function awake. The caller holds mu.
func (f *Front) served(fn *function) bool {
	for _, o := range fn.offers {
		if o.usable() {
			return true
		}
	}
	return false
}

// placeable reports whether an agent of this front door may create the function. The caller holds mu.
func (f *Front) placeable(fn *function) bool {
	for _, s := range f.sessions {
		if !s.declared.Front && !s.leaving && s.declared.allows(fn.name) && fn.placed.selector.matches(s.labels()) && accepts(s.accepts, fn.name) {
			return true
		}
	}
	return false
}

// later reports whether an offer is another front door's, which may have the function created, as this one may too.
// The caller holds mu.
func (f *Front) later(fn *function, o *offer) bool {
	return fn.placed != nil && o.session.declared.Front && o.state.State == api.Gone && f.placeable(fn)
}

// unserved returns the waiting requests for which no cluster that may see them can have the function awake. The
// caller holds mu.
func (f *Front) unserved(fn *function) (list []group) {
	count := func(d api.Demand, own bool) {
		for _, g := range f.groups(fn, d) {
			seen := false
			for _, o := range fn.offers {
				if o.session.declared.Front && (!own || f.later(fn, o)) {
					continue // a request at one front door never goes through two others
				}
				seen = seen || o.usable() && bars(o.session.declared, fn.placed.spec.Regions, g.tenant) == ""
			}
			if g.waiting > 0 && !seen {
				list = append(list, g)
			}
		}
	}
	for _, d := range fn.theirs {
		count(d, false)
	}
	count(fn.demand, true)
	return list
}

// pending returns until when to wait for an agent that was sent the manifest; zero: none.
func (f *Front) pending(p *placement, now time.Time) (until time.Time) {
	for agent, o := range p.sent {
		switch {
		case f.sessions[agent] != o.session || o.session.leaving:
			delete(p.sent, agent)
		case now.Before(o.until):
			if o.until.After(until) {
				until = o.until
			}
		default:
			delete(p.sent, agent)
			p.refused[agent] = &refusal{api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "it did not answer within %s", applyTimeout), now.Add(refusedFor)}
		}
	}
	return until
}

// fail tells the activator why a function can't start, or that it can again.
func (f *Front) fail(fn *function, err *api.Error) []func() {
	if err == nil && !fn.failed {
		return nil
	}
	fn.failed = err != nil
	return []func(){func() { f.deps.Activator.Fail(fn.name, err) }}
}

// send sends the manifest to an agent. The caller holds mu.
func (f *Front) send(fn *function, s *session) {
	f.seq++
	now := time.Now()
	fn.placed.sent[s.agent()] = &order{session: s, number: f.seq, until: now.Add(applyTimeout)}
	fn.placed.began[s.agent()] = now
	s.apply = append(slices.DeleteFunc(s.apply, func(m protocol.Manifest) bool { return m.Name == fn.name }), protocol.Manifest{Name: fn.name, Number: f.seq, YAML: fn.placed.spec.Manifest})
	s.nudge()
}

// answered applies an agent's report of what it accepts, and its answers to manifests. The caller holds mu.
func (f *Front) answered(s *session, up *protocol.Up) (tell []func()) {
	if up.Accepts != nil {
		s.accepts = *up.Accepts
		for _, fn := range f.functions {
			f.reconsider(fn)
			tell = append(tell, f.placing(fn)...)
		}
	}
	for _, a := range up.Applied {
		fn := f.functions[a.Name]
		if fn != nil && a.Failed != nil && fn.offers[s.agent()] != nil && fn.offers[s.agent()].removing == a.Number {
			fn.offers[s.agent()].removing = 0 // it is in use again
			f.divide(fn)
			continue
		}
		if fn == nil || fn.placed == nil {
			continue
		}
		o := fn.placed.sent[s.agent()]
		if o == nil || o.number != a.Number || a.Failed == nil {
			continue // it offers it now
		}
		f.log.Warn("a cluster does not create a function", "function", a.Name, "cluster", s.hello.Cluster, "because", a.Failed.Message)
		delete(fn.placed.sent, s.agent())
		fn.placed.refused[s.agent()] = &refusal{a.Failed.AsError(), time.Now().Add(refusedFor)}
		f.reconsider(fn)
	}
	return tell
}

// placing tells the other front doors whether this one may have a function created. The caller holds mu.
func (f *Front) placing(fn *function) []func() {
	if fn.placed == nil {
		return nil
	}
	return []func(){func() { f.deps.Changed(fn.name) }}
}

// removeAfter returns how long it may stay unloaded in a cluster before it is removed there.
func (fn *function) removeAfter() time.Duration {
	if fn.placed != nil && fn.placed.spec.RemoveAfter > 0 {
		return fn.placed.spec.RemoveAfter
	}
	return api.DefaultRemoveAfter
}

// armSweep schedules the removal of the function where it is unused. The caller holds mu.
func (f *Front) armSweep(fn *function) {
	var first time.Time
	for _, o := range fn.offers {
		if at := o.unloaded.Add(fn.removeAfter()); o.state.Applied && o.removing == 0 && !o.unloaded.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	switch {
	case first.IsZero() && fn.sweep == nil:
	case first.IsZero():
		fn.sweep.Stop()
	case fn.sweep == nil:
		fn.sweep = time.AfterFunc(time.Until(first), func() { f.removeIdle(fn) })
	default:
		fn.sweep.Reset(time.Until(first))
	}
}

// removeIdle removes a function where it has been unloaded for long and nothing waits for it.
func (f *Front) removeIdle(fn *function) {
	f.change(func() []func() {
		if f.functions[fn.name] != fn {
			return nil
		}
		if fn.waiting() > 0 {
			return nil // it is about to be loaded; a change arms the sweep again
		}
		now := time.Now()
		for _, o := range fn.offers {
			if !o.unloaded.IsZero() && !now.Before(o.unloaded.Add(fn.removeAfter())) {
				f.removeAt(fn, o)
			}
		}
		f.armSweep(fn)
		return nil
	})
}

// removeAt tells an agent to remove a function that this front door had created there. The caller holds mu.
func (f *Front) removeAt(fn *function, o *offer) {
	if !o.state.Applied || o.removing != 0 {
		return
	}
	f.seq++
	o.removing = f.seq
	o.session.remove = append(o.session.remove, protocol.Removal{Name: fn.name, Number: f.seq})
	o.session.nudge()
	f.log.Info("a function is removed from a cluster", "function", fn.name, "cluster", o.session.hello.Cluster, "agent", o.session.hello.Agent)
}
