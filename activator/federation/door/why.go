package door

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Values of [api.Decision].Action.
const (
	actionHeld   = "held"   // here
	actionChosen = "chosen" // asked to take some
	actionPassed = "passed" // not asked, with the reason
)

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func (f *state) sessionsOf(cluster string) (list []*session) {
	for _, agent := range sorted(f.sessions) {
		if s := f.sessions[agent]; s.hello.Cluster == cluster {
			list = append(list, s)
		}
	}
	return list
}

// Far returns the functions that agents have or may create: all in short, or one in full.
func (f *Front) Far(name api.FunctionName) []admin.Far {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "" {
		fn := f.functions[name]
		if fn == nil || !fn.far() {
			return nil
		}
		far := f.far(fn)
		far.Why, far.Wakes = f.why(fn, time.Now()), slices.Clone(fn.wakes.records)
		return []admin.Far{far}
	}
	list := make([]admin.Far, 0, len(f.functions))
	for _, name := range sorted(f.functions) {
		if fn := f.functions[name]; fn.far() {
			list = append(list, f.far(fn))
		}
	}
	return list
}

func (f *state) far(fn *function) admin.Far {
	far := admin.Far{Front: f.cfg.Name, Function: admin.Function{Function: fn.spec.WithoutSecrets(), Waiting: fn.demand.Waiting, LastRequest: fn.demand.LastRequest}}
	if far.Function.Function.Name == "" { // this machine declares it, or it was lost
		far.Function.Function = f.merged(fn)
	}
	for _, agent := range sorted(fn.offers) {
		o := fn.offers[agent]
		far.Clusters = append(far.Clusters, o.session.hello.Cluster)
		far.Function.Running += o.state.Running
		if o.asked > 0 || o.state.State == api.Awake {
			far.Function.Desired++
		}
		if o.state.State != api.Gone {
			far.Function.Instances = append(far.Function.Instances, o.status())
		}
		if o.state.Failed != nil {
			far.Function.LastError = o.session.hello.Cluster + ": " + o.state.Failed.Message
		}
	}
	far.Clusters = slices.Compact(far.Clusters)
	return far
}

func (f *state) why(fn *function, now time.Time) (list []api.Decision) {
	say := func(who, action, reason string) {
		list = append(list, api.Decision{At: now, Function: fn.name, Instance: api.InstanceID(who), Action: action, Reason: reason})
	}
	if n := fn.waiting(); n > 0 {
		waits := "requests wait"
		if fn.demand.Waiting == 1 {
			waits = "request waits"
		}
		reason := fmt.Sprintf("%d %s at front door %s", fn.demand.Waiting, waits, f.cfg.Name)
		if n > fn.demand.Waiting {
			reason += fmt.Sprintf(", %d at others", n-fn.demand.Waiting)
		}
		if age := fn.oldest(now); age > 0 {
			reason += fmt.Sprintf(", the oldest for %s", age.Round(100*time.Millisecond))
		}
		say("", actionHeld, reason)
	}
	if n := fn.near; n != nil {
		action := actionPassed
		if n.asked > 0 || n.candidate(0).State == api.Awake {
			action = actionChosen
		}
		say(here, action, n.describe(fn.runningHere()))
	}
	for _, name := range sorted(f.clusters) {
		sessions := f.sessionsOf(name)
		for _, s := range sessions {
			if o := fn.offers[s.agent()]; o.chosen() && fn.barred(s.declared) == "" {
				say(s.agent(), actionChosen, o.describe())
			} else {
				say(s.agent(), actionPassed, fn.passed(s, now))
			}
		}
		if len(sessions) == 0 {
			say(name, actionPassed, f.absent(fn, f.clusters[name]))
		}
	}
	return list
}

func (fn *function) oldest(now time.Time) time.Duration {
	if fn.demand.Waiting == 0 || fn.demand.At.IsZero() {
		return 0
	}
	return fn.demand.OldestAge + max(0, now.Sub(fn.demand.At))
}

func (fn *function) passed(s *session, now time.Time) string {
	o := fn.offers[s.agent()]
	switch {
	case !s.declared.allows(fn.name):
		return "its declaration at the front door does not allow the function"
	case o == nil && fn.placed != nil && fn.placed.sent[s.agent()] != nil:
		return "it was told to create the function, and has not answered yet"
	case o == nil && fn.placed != nil:
		return cmp.Or(fn.unfit(s, now), fn.barred(s.declared), "the function may be created there")
	case o == nil && s.complete.IsZero():
		return "it has come, and has not said yet what it has"
	case o == nil:
		return "it does not have the function"
	}
	reason := o.describe()
	if why := fn.barred(s.declared); why != "" {
		return why + "; " + reason
	}
	if chosen := fn.chosen(); o.usable() && fn.waiting() > 0 && len(chosen) > 0 {
		reason += "; " + strings.Join(chosen, ", ") + " comes before it: sooner, less busy, cheaper or nearer"
	}
	return reason
}

func (o *offer) chosen() bool {
	return o != nil && o.usable() && (o.asked > 0 || o.state.State == api.Awake && o.state.Places > 0)
}

func (fn *function) chosen() (agents []string) {
	for _, agent := range sorted(fn.offers) {
		if fn.offers[agent].chosen() {
			agents = append(agents, agent)
		}
	}
	return agents
}

// barred returns why a cluster may see none of the waiting requests.
func (fn *function) barred(d Declaration) (why string) {
	regions := fn.regions()
	if len(fn.demand.Tenants) == 0 {
		if len(d.Tenants) > 0 { // the tenants of the waiting requests are unknown
			return ""
		}
		return bars(d, regions, "")
	}
	for _, client := range sorted(fn.demand.Tenants) {
		if why = bars(d, regions, peer.Tenant(client)); why == "" {
			return ""
		}
	}
	return why
}

func (f *state) absent(fn *function, c *cluster) string {
	state := "it has not joined since this front door began, at " + clock(f.begun)
	if c.last != nil {
		state = "it is away since " + clock(c.lostAt)
	}
	if c.rejected.reason != "" {
		state += "; it was refused at " + clock(c.rejected.at) + ": " + c.rejected.reason
	}
	if !c.allows(fn.name) {
		state += "; its declaration does not allow the function"
	}
	return state
}

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

func (o *offer) describe() string {
	expected := awakeIn(o.state.Expected)
	switch s := o.state; {
	case s.Failed != nil && s.State != api.Awake:
		return "it can't start there: " + s.Failed.Message
	case o.session.leaving:
		return "it is ending: it finishes what runs, and takes nothing new"
	case o.removing != 0:
		return "it is being removed there"
	case s.State == api.Awake && s.Running >= s.Places:
		return fmt.Sprintf("awake and full: %d run there, and this front door may have %d", s.Running, s.Places)
	case s.State == api.Awake:
		return fmt.Sprintf("awake: %d run there, and this front door may have %d", s.Running, s.Places)
	case s.State == api.Gone:
		return "not loaded" + expected
	}
	return string(o.state.State) + expected
}

// List returns the state of the declared clusters, ordered by name.
func (f *Front) List() []admin.Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]admin.Cluster, 0, len(f.clusters))
	for _, name := range sorted(f.clusters) {
		list = append(list, f.list(f.clusters[name]))
	}
	return list
}

func (f *state) list(d *cluster) admin.Cluster {
	c := admin.Cluster{Name: d.Name, Front: d.Front, State: admin.ClusterAway, Rejected: d.rejected.reason, RejectedAt: d.rejected.at}
	if d.last != nil {
		c.Since = d.lostAt
	}
	refused := map[string]bool{}
	for _, s := range f.sessionsOf(d.Name) {
		if len(c.Agents) == 0 || s.since.Before(c.Since) {
			c.Since = s.since
		}
		c.Agents = append(c.Agents, admin.ClusterAgent{Name: s.hello.Agent, Version: s.hello.Version, Way: s.way, Since: s.since, Links: s.links})
		if !s.leaving {
			c.State = admin.ClusterJoined
		} else if c.State == admin.ClusterAway {
			c.State = admin.ClusterLeaving
		}
		for r := range s.refusals {
			refused[string(r.Function)+": "+r.Reason] = true
		}
	}
	c.Refused = sorted(refused)
	for _, name := range sorted(f.functions) {
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
