package door

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// LabelCluster is a label that each cluster has: its declared name.
const LabelCluster = "rouse.dev/cluster"

const (
	applyTimeout = 30 * time.Second
	refusedFor   = 30 * time.Second
)

// placement is a function to be created in a matching cluster, once requests wait that no agent can serve.
type placement struct {
	spec     api.Function
	selector selector
	sent     map[string]*order        // unanswered, or not offered yet
	refused  map[string]*refusal      // by agent, like sent and began
	began    map[string]time.Time     // when the manifest was sent
	took     map[string]time.Duration // by cluster
}

type order struct {
	session *session
	number  uint64
	until   time.Time
}

type refusal struct {
	err   *api.Error
	until time.Time
}

// Place declares a function, which is created on demand in a matching cluster. It replaces an earlier placement.
func (f *Front) Place(spec api.Function) error {
	chosen, err := parseSelector(spec.Clusters)
	if err != nil {
		return api.BadRequest("clusters", "the annotation rouse.dev/clusters: %v", err)
	}
	if len(spec.Manifest) == 0 || len(spec.Manifest) > protocol.MaxManifest {
		return api.BadRequest("manifest", "the manifest of %s has %d bytes: want 1 to %d", spec.Name, len(spec.Manifest), protocol.MaxManifest)
	}
	f.change(func() {
		fn := f.function(spec.Name)
		changed := fn.placed != nil && fn.placed.spec.Manifest != spec.Manifest
		fn.placed = &placement{spec: spec, selector: chosen, sent: map[string]*order{}, refused: map[string]*refusal{}, began: map[string]time.Time{}, took: map[string]time.Duration{}}
		for _, o := range fn.offers {
			if changed && o.state.Applied {
				f.sendManifest(fn, o.session)
			}
		}
		fn.spec, fn.failed, f.renamed = api.Function{}, false, true // the activator forgets failures
	})
	return nil
}

// Unplace removes a placed function, also where this front door had it created.
func (f *Front) Unplace(name api.FunctionName) (was bool) {
	f.change(func() {
		fn := f.functions[name]
		if fn == nil || fn.placed == nil {
			return
		}
		was = true
		fn.placed, fn.lost, f.renamed = nil, "", true
		for _, o := range fn.offers {
			f.removeAt(fn, o)
		}
		if len(fn.offers) == 0 && fn.near == nil {
			f.remove(fn)
		}
		f.markStale(fn)
	})
	return was
}

// came records that an agent offers the function. p may be nil.
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

func (fn *function) waiting() int {
	n := fn.demand.Waiting
	for _, d := range fn.theirs {
		n += d.Waiting
	}
	return n
}

func (f *state) place(fn *function, now time.Time) {
	if fn.waiting() == 0 {
		return
	}
	groups := f.unserved(fn)
	if len(groups) == 0 {
		f.fail(fn, nil)
		return
	}
	if until := f.pending(fn.placed, now); !until.IsZero() {
		fn.wakeAt(until)
		return
	}
	var why []string
	for _, g := range groups {
		var candidates []candidate
		candidates, why = f.candidates(fn, g.tenant, now)
		if list := orderCandidates(candidates); len(list) > 0 {
			s := f.sessions[list[0].Name]
			f.sendManifest(fn, s)
			f.log.Info("a cluster is asked to create a function", "function", fn.name, "cluster", s.hello.Cluster, "agent", s.hello.Agent)
			fn.wakeAt(now.Add(applyTimeout))
			return
		}
		if until := f.mayCome(fn, g.tenant, now); !until.IsZero() {
			fn.wakeAt(until)
			return
		}
	}
	for _, o := range fn.offers {
		if o.usable() {
			return // [Front.Bars] refuses new requests of barred clients, and waiting ones wait
		}
	}
	if failed := fn.failure(); failed != nil && len(why) <= 1 {
		f.fail(fn, failed)
		return
	}
	if len(why) == 0 {
		why = []string{"none is connected"}
	}
	f.fail(fn, api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "no cluster takes %s: %s", fn.name, strings.Join(why, "; ")).WithRetryAfter(retryLater))
}

func (f *state) placeable(fn *function) bool {
	for _, s := range f.sessions {
		if !s.leaving && fn.unacceptable(s) == "" {
			return true
		}
	}
	return false
}

// yields reports whether another front door may have the function created, as this one may too.
func (f *state) yields(fn *function, o *offer) bool {
	return fn.placed != nil && o.session.declared.Front && o.state.State == api.Gone && f.placeable(fn)
}

// unserved returns the waiting requests that no cluster can serve.
func (f *state) unserved(fn *function) (list []group) {
	count := func(d api.Demand, own bool) {
		for _, g := range f.groups(fn, d) {
			seen := false
			for _, o := range fn.offers {
				if o.session.declared.Front && (!own || f.yields(fn, o)) {
					continue // a request at one front door never goes through two others
				}
				seen = seen || o.usable() && bars(o.session.declared, fn.regions(), g.tenant) == ""
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

// pending returns until when to wait for an agent that was sent the manifest.
func (f *state) pending(p *placement, now time.Time) (until time.Time) {
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

func (f *state) candidates(fn *function, tenant string, now time.Time) (list []candidate, why []string) {
	created := map[string]int{}
	for _, other := range f.functions {
		for agent, o := range other.offers {
			if o.state.Applied {
				created[agent]++
			}
		}
	}
	for _, agent := range sorted(f.sessions) {
		s := f.sessions[agent]
		if reason := cmp.Or(fn.unfit(s, now), bars(s.declared, fn.regions(), tenant)); reason != "" {
			why = append(why, s.hello.Cluster+": "+reason)
			continue
		}
		list = append(list, candidate{Name: agent, State: api.Gone, Expected: fn.placed.took[s.hello.Cluster], Way: s.way,
			Running: created[agent], Slots: protocol.MaxFunctions, Cost: s.declared.Cost})
	}
	return list, why
}

func (fn *function) unacceptable(s *session) string {
	switch {
	case s.declared.Front:
		return "it is another front door"
	case !s.declared.allows(fn.name):
		return "not among the functions that the front door declares for it"
	case !fn.placed.selector.matches(s.labels()):
		return fmt.Sprintf("its labels are not as rouse.dev/clusters says (%s)", fn.placed.spec.Clusters)
	case !protocol.Matches(s.accepts.Functions, string(fn.name)):
		return "it accepts no function of that name from a front door (rouse up --accept-functions)"
	}
	return ""
}

func (fn *function) unfit(s *session, now time.Time) string {
	refused, offered := fn.placed.refused[s.agent()], fn.offers[s.agent()]
	has, needs := s.accepts.Memory, fn.placed.spec.Memory
	never := fn.unacceptable(s)
	switch {
	case s.leaving:
		return "it is ending"
	case never != "":
		return never
	case offered != nil && offered.state.Failed != nil:
		return offered.state.Failed.Message
	case offered != nil && offered.removing == 0:
		return "it has the function"
	case refused != nil && now.Before(refused.until):
		return refused.err.Message
	case has == nil: // it has not said how much memory it has
	case needs.Host > has.Host:
		return fmt.Sprintf("it needs %s of host memory and there is %s", needs.Host, has.Host)
	case needs.Devices > has.Devices:
		return fmt.Sprintf("it needs %d GPUs and there are %d", needs.Devices, has.Devices)
	case needs.Devices > 0 && needs.PerDevice > has.PerDevice:
		return fmt.Sprintf("it needs %s on each GPU and there is %s", needs.PerDevice, has.PerDevice)
	}
	return ""
}

func (s *session) labels() map[string]string {
	all := map[string]string{}
	maps.Copy(all, s.declared.Labels)
	all[LabelCluster] = s.declared.Name
	return all
}

// mayCome returns until when to wait for a cluster that has just disconnected, or has not yet reported its functions.
func (f *state) mayCome(fn *function, tenant string, now time.Time) (until time.Time) {
	joined := map[string]bool{}
	wait := func(d Declaration, t time.Time) {
		if now.Before(t) && t.After(until) && d.allows(fn.name) && bars(d, fn.regions(), tenant) == "" {
			until = t
		}
	}
	for _, s := range f.sessions {
		joined[s.hello.Cluster] = true
		if s.complete.IsZero() && !s.leaving {
			wait(s.declared, s.since.Add(protocol.DeadAfter))
		}
	}
	for name, c := range f.clusters {
		never := fn.placed != nil && (c.Front || c.last != nil && fn.unacceptable(c.last) != "")
		if !joined[name] && !never {
			wait(c.Declaration, c.lostAt.Add(keepFor))
		}
	}
	return until
}

func (f *state) sendManifest(fn *function, s *session) {
	now := time.Now()
	number := f.sendOrder(fn, s, fn.placed.spec.Manifest)
	fn.placed.sent[s.agent()] = &order{session: s, number: number, until: now.Add(applyTimeout)}
	fn.placed.began[s.agent()] = now
}

// sendOrder replaces an order that was not sent yet. Without a manifest it removes the function.
func (f *state) sendOrder(fn *function, s *session, manifest string) (number uint64) {
	f.seq++
	s.orders = append(slices.DeleteFunc(s.orders, func(m protocol.Manifest) bool { return m.Name == fn.name }), protocol.Manifest{Name: fn.name, Number: f.seq, YAML: manifest})
	s.wake.Ring()
	return f.seq
}

func (f *state) applyAnswers(s *session, up *protocol.Up) {
	if up.Accepts != nil {
		s.accepts = *up.Accepts
		for _, fn := range f.functions {
			if fn.placed != nil {
				f.markStale(fn)
			}
		}
	}
	for _, a := range up.Applied {
		fn := f.functions[a.Name]
		if fn == nil {
			continue
		}
		if o := fn.offers[s.agent()]; o != nil && o.removing == a.Number {
			o.removing = 0 // in use again, or another front door has it there
			f.markStale(fn)
			continue
		}
		if fn.placed == nil || a.Failed == nil {
			continue
		}
		if o := fn.placed.sent[s.agent()]; o != nil && o.number == a.Number {
			f.log.Warn("a cluster does not create a function", "function", a.Name, "cluster", s.hello.Cluster, "because", a.Failed.Message)
			delete(fn.placed.sent, s.agent())
			fn.placed.refused[s.agent()] = &refusal{a.Failed.AsError(), time.Now().Add(refusedFor)}
			f.markStale(fn)
		}
	}
}

func (f *state) removeIdle(fn *function, now time.Time) {
	after := api.DefaultRemoveAfter
	if fn.placed != nil && fn.placed.spec.RemoveAfter > 0 {
		after = fn.placed.spec.RemoveAfter
	}
	for _, o := range fn.offers {
		if !o.state.Applied || o.removing != 0 || o.unloaded.IsZero() {
			continue
		}
		if due := o.unloaded.Add(after); now.Before(due) {
			fn.wakeAt(due)
		} else if fn.waiting() == 0 {
			f.removeAt(fn, o)
		}
	}
}

func (f *state) removeAt(fn *function, o *offer) {
	if o.state.Applied && o.removing == 0 {
		o.removing = f.sendOrder(fn, o.session, "")
		f.log.Info("a function is removed from a cluster", "function", fn.name, "cluster", o.session.hello.Cluster, "agent", o.session.hello.Agent)
	}
}
