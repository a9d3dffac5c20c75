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

// Values of [api.Decision].Action that explain where a function waits.
const (
	actionHeld   = "held"   // requests wait at this front door
	actionChosen = "chosen" // a cluster was asked to take some
	actionPassed = "passed" // a cluster was not asked, with the reason
)

// Far returns the state of functions that agents have or may create: all in short, or one in full.
func (f *Front) Far(name api.FunctionName) []admin.Far {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "" {
		fn := f.functions[name]
		if fn == nil {
			return nil
		}
		far := f.far(fn)
		far.Why, far.Wakes = f.why(fn, time.Now()), fn.wakes.list()
		return []admin.Far{far}
	}
	list := make([]admin.Far, 0, len(f.functions))
	for _, name := range slices.Sorted(maps.Keys(f.functions)) {
		list = append(list, f.far(f.functions[name]))
	}
	return list
}

// far returns a function in the form of a local one. The caller holds mu.
func (f *Front) far(fn *function) admin.Far {
	far := admin.Far{Front: f.cfg.Name, Function: admin.Function{Function: fn.spec.WithoutSecrets(), Waiting: fn.demand.Waiting, LastRequest: fn.demand.LastRequest}}
	if far.Function.Function.Name == "" { // this machine declares it, or it was lost
		far.Function.Function = f.merged(fn)
	}
	for _, agent := range slices.Sorted(maps.Keys(fn.offers)) {
		o := fn.offers[agent]
		far.Clusters = append(far.Clusters, o.session.hello.Cluster)
		far.Function.Running += o.state.Running
		if o.asked > 0 || o.state.State == api.Awake {
			far.Function.Desired++
		}
		if o.state.State != api.Gone {
			far.Function.Instances = append(far.Function.Instances, o.status("", 0))
		}
		if o.state.Failed != nil {
			far.Function.LastError = o.session.hello.Cluster + ": " + o.state.Failed.Message
		}
	}
	far.Clusters = slices.Compact(far.Clusters)
	return far
}

// why explains which requests wait for a function here, and for each declared cluster whether and why it was chosen.
// The caller holds mu.
func (f *Front) why(fn *function, now time.Time) (list []api.Decision) {
	say := func(who, action, reason string) {
		list = append(list, api.Decision{At: now, Function: fn.name, Instance: api.InstanceID(who), Action: action, Reason: reason})
	}
	if n := fn.waiting(); n > 0 {
		reason := fmt.Sprintf("%s at front door %s", number(fn.demand.Waiting, "request waits", "requests wait"), f.cfg.Name)
		if n > fn.demand.Waiting {
			reason += fmt.Sprintf(", %d at others", n-fn.demand.Waiting)
		}
		if age := f.oldest(fn, now); age > 0 {
			reason += fmt.Sprintf(", the oldest for %s", age.Round(100*time.Millisecond))
		}
		say("", actionHeld, reason)
	}
	if n := f.near[fn.name]; n != nil {
		action := actionPassed
		if n.asked > 0 || n.cluster(0).State == api.Awake {
			action = actionChosen
		}
		say(here, action, n.describe(n.runs(fn)))
	}
	for _, name := range slices.Sorted(maps.Keys(f.declared)) {
		there := false
		for _, agent := range slices.Sorted(maps.Keys(f.sessions)) {
			s := f.sessions[agent]
			if s.hello.Cluster != name {
				continue
			}
			there = true
			if o := fn.offers[agent]; o.chosen() && f.barred(fn, s.declared) == "" {
				say(agent, actionChosen, o.describe())
			} else {
				say(agent, actionPassed, f.passed(fn, s, now))
			}
		}
		if !there {
			say(name, actionPassed, f.absent(fn, f.declared[name]))
		}
	}
	return list
}

func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// oldest returns how long the first waiting request here has waited. The caller holds mu.
func (f *Front) oldest(fn *function, now time.Time) time.Duration {
	if fn.demand.Waiting == 0 || fn.demand.At.IsZero() {
		return 0
	}
	return fn.demand.OldestAge + max(0, now.Sub(fn.demand.At))
}

// passed returns why a connected agent was asked for nothing. The caller holds mu.
func (f *Front) passed(fn *function, s *session, now time.Time) string {
	o := fn.offers[s.agent()]
	switch {
	case !s.declared.allows(fn.name):
		return "its declaration at the front door does not allow the function"
	case o == nil && fn.placed != nil && fn.placed.sent[s.agent()] != nil:
		return "it was told to create the function, and has not answered yet"
	case o == nil && fn.placed != nil:
		return cmp.Or(fn.unfit(s, now), f.barred(fn, s.declared), "the function may be created there")
	case o == nil && !s.complete:
		return "it has come, and has not said yet what it has"
	case o == nil:
		return "it does not have the function"
	}
	reason := o.describe()
	if why := f.barred(fn, s.declared); why != "" {
		return why + "; " + reason
	}
	if chosen := fn.chosen(); o.usable() && fn.waiting() > 0 && len(chosen) > 0 {
		reason += "; " + strings.Join(chosen, ", ") + " comes before it: sooner, less busy, cheaper or nearer"
	}
	return reason
}

// chosen reports whether requests go there: it was asked to take some, or is awake with free slots.
func (o *offer) chosen() bool {
	return o != nil && o.usable() && (o.asked > 0 || o.state.State == api.Awake && o.state.Places > 0)
}

// chosen returns the agents that get requests.
func (fn *function) chosen() (agents []string) {
	for _, agent := range slices.Sorted(maps.Keys(fn.offers)) {
		if fn.offers[agent].chosen() {
			agents = append(agents, agent)
		}
	}
	return agents
}

// barred returns why a cluster may see none of the waiting requests; empty: it may see some, or none wait. The caller
// holds mu.
func (f *Front) barred(fn *function, d Declaration) (why string) {
	regions := f.regions(fn)
	if len(fn.demand.Tenants) == 0 {
		if len(d.Tenants) > 0 { // the tenants of the waiting requests are unknown
			return ""
		}
		return bars(d, regions, "")
	}
	for _, client := range slices.Sorted(maps.Keys(fn.demand.Tenants)) {
		if why = bars(d, regions, peer.Tenant(client)); why == "" {
			return ""
		}
	}
	return why
}

// absent returns why nothing is asked of a disconnected cluster. The caller holds mu.
func (f *Front) absent(fn *function, d Declaration) string {
	state := "it has not joined since this front door began, " + ago(f.begun)
	if l, was := f.lost[d.Name]; was {
		state = "it is away since " + clock(l.at)
	}
	if r, ok := f.rejected[d.Name]; ok {
		state += "; it was refused " + ago(r.at) + ": " + r.reason
	}
	if !d.allows(fn.name) {
		state += "; its declaration does not allow the function"
	}
	return state
}

// ago formats a time of day.
func ago(t time.Time) string { return "at " + clock(t) }

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// describe returns a function's state at an agent.
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
