package door

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// function is a function that agents serve, that this machine has, or that is to be created in a cluster.
type function struct {
	name   api.FunctionName
	local  api.FunctionName  // the activator's name for it
	born   uint64            // a later function has a greater one
	offers map[string]*offer // by agent
	near   *near             // nil: this machine does not have it
	placed *placement        // nil: this front door does not place it
	demand api.Demand
	theirs map[string]api.Demand // the last of other front doors, by sender
	claims map[api.ModelName]claim
	wakes  wakes

	// What the activator was told last.
	spec   api.Function                  // empty: not told
	told   map[string]api.InstanceStatus // by agent
	failed bool

	// Of a function that was told, and that nothing has now.
	vacant time.Time  // since when; zero: something has it
	lost   string     // the lost cluster that had it last
	away   *api.Error // why requests are refused

	timer *time.Timer
	next  time.Time // when timer fires; zero: it is not armed
}

type offer struct {
	session *session
	state   protocol.Function
	since   time.Time
	news    bool // not told to the activator
	had     bool
	asked   int // to take so many waiting requests
	// unloaded is when the last instance there was unloaded; zero: one is loaded.
	unloaded time.Time
	removing uint64 // the order to remove it; 0: none
}

func (f *state) function(name api.FunctionName) *function {
	fn := f.functions[name]
	if fn == nil {
		f.seq++
		fn = &function{name: name, local: name, born: f.seq, offers: map[string]*offer{}, theirs: map[string]api.Demand{}, told: map[string]api.InstanceStatus{}}
		fn.timer = time.AfterFunc(time.Hour, func() { f.timeout(fn) })
		fn.timer.Stop()
		f.functions[name], f.renamed = fn, true
	}
	f.markStale(fn)
	return fn
}

// find takes the activator's name.
func (f *state) find(local api.FunctionName) *function {
	if name, is := f.names[local]; is {
		return f.functions[name]
	}
	return f.functions[local]
}

// Local returns the activator's name for a function.
func (f *Front) Local(name api.FunctionName) api.FunctionName {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fn := f.functions[name]; fn != nil {
		return fn.local
	}
	return name
}

// far reports whether the function is not this machine's alone.
func (fn *function) far() bool { return fn.near == nil || fn.placed != nil || len(fn.offers) > 0 }

func (fn *function) wakeAt(at time.Time) {
	if fn.next.IsZero() || at.Before(fn.next) {
		fn.next = at
		fn.timer.Reset(time.Until(at))
	}
}

func (fn *function) due(now time.Time) bool { return !fn.next.IsZero() && !now.Before(fn.next) }

// usable reports whether the agent can have it awake.
func (o *offer) usable() bool { return !o.session.leaving && o.removing == 0 && o.state.Failed == nil }

func (f *Front) applyUpdate(s *session, up *protocol.Up) (err error) {
	f.change(func() {
		if f.sessions[s.agent()] != s {
			err = errReplaced
			return
		}
		s.heard = time.Now()
		if up.Beat > 0 {
			s.beat, s.way = up.Beat, up.Way
			s.wake.Ring()
			if (s.way - s.wayTold).Abs() >= route.SameWay/4 {
				s.wayTold = s.way
				f.markAgent(s)
			}
		}
		if up.Doubles > s.doubles {
			f.metrics.doubles.WithLabelValues(s.hello.Cluster).Add(float64(up.Doubles - s.doubles))
			s.doubles = up.Doubles
		}
		if up.Leaving && !s.leaving {
			s.leaving = true
			f.markAgent(s)
			f.tell(func() {
				s.pool.Retire()
				f.logOf(s).Info("a cluster is leaving")
				f.deps.Tell("cluster " + s.hello.Cluster + " is leaving (agent " + s.hello.Agent + "): it finishes what runs there, and takes nothing new")
			})
		}
		for _, state := range up.Functions {
			f.applyFunction(s, state)
		}
		f.applyAnswers(s, up)
		f.mergeWakes(s, up.Wakes)
		if up.Complete && s.complete.IsZero() {
			s.complete = time.Now()
			for _, fn := range f.functions {
				if o := fn.offers[s.agent()]; o != nil && o.session != s {
					s.reported -= o.size()
					f.withdraw(fn, s.agent(), "") // of an earlier session
				}
				f.markStale(fn) // it may have waited for this
			}
		}
	})
	return err
}

func (f *state) markAgent(s *session) {
	for _, fn := range f.functions {
		if fn.offers[s.agent()] != nil {
			f.markStale(fn)
		}
	}
}

func (f *state) applyFunction(s *session, state protocol.Function) {
	if !s.declared.allows(state.Name) {
		denied := state.Model != "" && (s.denied[state.Name] || len(s.denied) < protocol.MaxFunctions)
		f.renamed = f.renamed || denied != s.denied[state.Name]
		if s.denied[state.Name] = denied; !denied {
			delete(s.denied, state.Name)
		}
		return
	}
	if state.Model == "" {
		if fn := f.functions[state.Name]; fn != nil && fn.offers[s.agent()] != nil {
			s.reported -= fn.offers[s.agent()].size()
			f.withdraw(fn, s.agent(), "")
		}
		return
	}
	fn := f.function(state.Name)
	o := fn.offers[s.agent()]
	if s.reported += state.Size() - o.size(); s.reported > protocol.MaxReported {
		f.shutOut(s, fmt.Sprintf("its functions, with their names and errors, have more than %d bytes", protocol.MaxReported))
		return
	}
	if o == nil {
		o = &offer{}
		fn.offers[s.agent()] = o
	}
	if o.session != s {
		o.removing = 0 // the order may not have arrived
	}
	if o.state.State != state.State {
		o.since = time.Now()
	}
	if loaded := state.State != api.Gone || state.Running+state.Waiting > 0; loaded {
		o.unloaded = time.Time{}
	} else if o.unloaded.IsZero() {
		o.unloaded = time.Now()
	}
	f.renamed = f.renamed || !slices.Equal(namesIn(o.state), namesIn(state))
	o.session, o.state, o.news = s, state, true
	fn.placed.came(s, state)
}

func (o *offer) size() int {
	if o == nil {
		return 0
	}
	return o.state.Size()
}

func (f *state) withdraw(fn *function, agent, lost string) {
	delete(fn.offers, agent)
	fn.lost, f.renamed = lost, true
	f.markStale(fn)
}

func (f *state) refresh(fn *function, now time.Time) {
	if f.functions[fn.name] != fn {
		return
	}
	fn.timer.Stop()
	fn.next = time.Time{}
	for agent, st := range fn.told {
		if fn.offers[agent] == nil {
			delete(fn.told, agent)
			f.observe(st, api.Gone)
		}
	}
	if !f.keep(fn, now) {
		f.remove(fn)
		return
	}
	spec := fn.spec
	switch {
	case fn.placed != nil:
		spec = fn.placed.spec
	case fn.near == nil && len(fn.offers) > 0:
		spec = f.merged(fn)
	default: // this machine declares it, or nothing has it
	}
	if !reflect.DeepEqual(spec, fn.spec) {
		fn.spec = spec
		f.tell(func() { f.deps.Activator.PutFunction(spec) })
	}
	for who, d := range fn.theirs {
		if end := d.At.Add(control.DemandTTL); now.Before(end) {
			fn.wakeAt(end)
		} else {
			delete(fn.theirs, who)
		}
	}
	f.divideDemand(fn)
	if fn.placed != nil {
		f.place(fn, now)
	} else if len(fn.offers) > 0 || fn.near != nil || fn.away != nil {
		f.fail(fn, cmp.Or(fn.away, fn.failure()))
	}
	for agent, o := range fn.offers {
		st := o.status()
		st.Function = fn.local
		st.Adapters = slices.DeleteFunc(slices.Clone(st.Adapters), func(n api.ModelName) bool { return !f.has(fn.name, n) })
		if was := fn.told[agent]; o.news || !reflect.DeepEqual(st, was) {
			fn.told[agent], o.news = st, false
			f.observe(st, st.State)
		}
	}
	f.removeIdle(fn, now)
	f.tell(func() { f.deps.Changed(fn.name) })
}

// keep reports whether a function stays. One that nothing has stays for a while; if its cluster was lost, its requests are
// then refused until that returns. No more stay than one agent may offer: the memory is bounded.
func (f *state) keep(fn *function, now time.Time) bool {
	if fn.near != nil || fn.placed != nil || len(fn.offers) > 0 {
		f.endVacancy(fn)
		fn.away = nil
		return true
	}
	if fn.vacant.IsZero() {
		fn.vacant = now
		f.vacancies++
	}
	until := fn.vacant.Add(keepFor)
	c := f.clusters[fn.lost]
	switch {
	case fn.spec.Name == "", fn.lost != "" && (c == nil || !c.allows(fn.name) || f.returned(fn)):
		return false
	case now.Before(until) && f.vacancies <= protocol.MaxFunctions:
		fn.wakeAt(until)
		return true
	case fn.lost == "", f.vacancies > protocol.MaxFunctions:
		return false
	case fn.away == nil:
		fn.away = api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "%s is in the cluster %s, which this front door has lost: it is served again once that has joined", fn.name, fn.lost).WithRetryAfter(retryLater)
	default:
	}
	return true
}

func (f *state) endVacancy(fn *function) {
	if !fn.vacant.IsZero() {
		fn.vacant = time.Time{}
		f.vacancies--
	}
}

func (f *state) remove(fn *function) {
	fn.timer.Stop()
	f.endVacancy(fn)
	delete(f.functions, fn.name)
	f.renamed = true
	if fn.spec.Name != "" {
		f.tell(func() { f.deps.Activator.RemoveFunction(fn.name) })
	}
}

func (f *state) returned(fn *function) bool {
	for _, s := range f.sessions {
		if s.hello.Cluster == fn.lost && s.complete.After(fn.vacant) {
			return true
		}
	}
	return false
}

// retryLater is the Retry-After for a function that no cluster has or can have now.
const retryLater = 5 * time.Second

// merged returns the function as clients see it. If the agents differ, the first by name wins. A function without another
// name is served by its full one.
func (f *state) merged(fn *function) api.Function {
	spec := api.Function{Name: fn.name, FullNameOnly: !f.has(fn.name, api.ModelName(fn.name.Name()))}
	for _, agent := range sorted(fn.offers) {
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

func (fn *function) failure() *api.Error {
	var last *api.Error
	for _, o := range fn.offers {
		if o.state.Failed == nil || o.state.State == api.Awake {
			return nil
		}
		last = o.state.Failed.AsError()
	}
	if fn.near != nil {
		return fn.near.failed
	}
	return last
}

func (f *state) fail(fn *function, err *api.Error) {
	if err != nil || fn.failed {
		fn.failed = err != nil
		f.tell(func() { f.deps.Activator.Fail(fn.local, err) })
	}
}

func instance(agent string, name api.FunctionName) api.InstanceID {
	return api.InstanceID(agent + "/" + string(name))
}

func (f *state) observe(st api.InstanceStatus, state api.State) {
	f.seq++
	st.State, st.Seq = state, f.seq
	f.tell(func() { f.deps.Activator.ObserveInstance(st) })
}

func (o *offer) status() api.InstanceStatus {
	state, s := o.state, o.session
	st := api.InstanceStatus{
		Instance: instance(s.agent(), state.Name), Function: state.Name, State: state.State, Since: o.since,
		Endpoint: endpoint(s.agent(), state.Name), Concurrency: state.Places, Waits: state.Waits, Adapters: state.Adapters, Model: state.About, Way: s.wayTold, Cost: s.declared.Cost,
	}
	if st.State == api.Awake && (state.Places+state.Waits == 0 || s.leaving) {
		st.State = api.Draining
	}
	return st
}
