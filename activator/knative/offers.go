package knative

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"

	servingclient "knative.dev/serving/pkg/client/clientset/versioned/typed/serving/v1"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/agent"

	"github.com/rouse-dev/rouse/api"
)

var errNoFront = errors.New("no front door knows this agent yet: its log says why")

func (p *process) join(o *offers, services servingclient.ServicesGetter) (_ *applier, err error) {
	deps := agent.Deps{Serve: o.serve, Functions: o.functions, Stats: o.stats, Emitter: api.EmitterFunc(o.emit), Logger: p.log}
	var applier *applier
	if accepted, err := p.cfg.accepted(); err != nil {
		return nil, err
	} else if accepted != nil {
		if applier, err = newApplier(*accepted, services); err != nil {
			return nil, err
		}
		deps.Applier = applier
	}
	if p.agent, err = agent.New(*p.cfg.Join, deps); err != nil {
		return nil, err
	}
	o.changed = p.agent.Changed
	p.events.watch = func(e api.Event) {
		if e.Type == api.EventDemand {
			o.touched(api.FunctionName(e.Subject))
		}
	}
	return applier, nil
}

// offers presents each Service as one function to front doors. It is safe for concurrent use, and does nothing on
// nil.
//
//  1. A Service has the model, the state and the instances of its revisions with traffic.
//  2. Each request that waits at a front door is assigned to a revision at random, by share, and is its demand.
//  3. A request goes to a revision with a free slot, by share; without one it is given back.
type offers struct {
	core    *activator.Activator
	out     api.Emitter // to the autoscaler
	pod     string
	changed func(service api.FunctionName) // set before any put

	mu        sync.Mutex // guards the fields below; no other lock is taken meanwhile
	revisions map[api.FunctionName]api.Function
	traffic   map[api.FunctionName][]activator.Share
	drawn     map[wanted]map[api.FunctionName]int // by revision
	all       map[api.FunctionName][]backend      // of backends; nil: outdated
}

type wanted struct {
	front   string
	service api.FunctionName
}

func newOffers(core *activator.Activator, out api.Emitter, pod string) *offers {
	return &offers{core: core, out: out, pod: pod, revisions: map[api.FunctionName]api.Function{},
		traffic: map[api.FunctionName][]activator.Share{}, drawn: map[wanted]map[api.FunctionName]int{}}
}

func (o *offers) put(f api.Function) {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.revisions[f.Name], o.all = f, nil
	o.mu.Unlock()
	o.changed(f.ServiceName())
}

func (o *offers) remove(name api.FunctionName) {
	if o == nil {
		return
	}
	o.mu.Lock()
	f, known := o.revisions[name]
	delete(o.revisions, name)
	o.all = nil
	o.mu.Unlock()
	if known {
		o.changed(f.ServiceName())
	}
}

// Without shares the traffic is unknown.
func (o *offers) route(t activator.Traffic) {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.all = nil
	if len(t.Shares) == 0 {
		delete(o.traffic, t.Service)
	} else {
		o.traffic[t.Service] = t.Shares
	}
	o.mu.Unlock()
	o.changed(t.Service)
}

func (o *offers) touched(name api.FunctionName) {
	if o == nil {
		return
	}
	o.mu.Lock()
	f, known := o.revisions[name]
	o.mu.Unlock()
	if known {
		o.changed(f.ServiceName())
	}
}

type backend struct {
	api.Function
	percent int
}

// backends returns the revisions with traffic of each Service, the greatest share first; without traffic the
// newest. The result must not be modified.
func (o *offers) backends() map[api.FunctionName][]backend {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all != nil {
		return o.all
	}
	all := map[api.FunctionName][]backend{}
	newest := map[api.FunctionName]api.Function{}
	for name, f := range o.revisions {
		service, percent := f.ServiceName(), 0
		for _, s := range o.traffic[service] {
			if s.Function == name {
				percent += s.Percent
			}
		}
		if percent > 0 {
			all[service] = append(all[service], backend{f, percent})
		}
		if name > newest[service].Name { // Knative numbers revisions so that their names sort by age
			newest[service] = f
		}
	}
	for service, f := range newest {
		if len(all[service]) == 0 {
			all[service] = []backend{{f, 100}}
		}
		slices.SortFunc(all[service], func(a, b backend) int {
			return cmp.Or(cmp.Compare(b.percent, a.percent), cmp.Compare(a.Name, b.Name))
		})
	}
	o.all = all
	return all
}

// See [agent.Deps].
func (o *offers) functions() []api.Function {
	all := o.backends()
	list := make([]api.Function, 0, len(all))
	for _, service := range slices.Sorted(maps.Keys(all)) {
		f := all[service][0].Function
		f.Name, f.Service = service, ""
		f.Aliases = slices.Clone(f.Aliases)
		for _, b := range all[service][1:] {
			for _, name := range b.Names() {
				if !slices.Contains(f.Names(), name) {
					f.Aliases = append(f.Aliases, name)
				}
			}
		}
		list = append(list, f)
	}
	return list
}

// See [agent.Deps].
func (o *offers) stats(service api.FunctionName) (sum api.Activity, ok bool) {
	failed := 0
	backends := o.backends()[service]
	for _, b := range backends {
		one, known := o.core.Stats(b.Name)
		if !known {
			continue
		}
		ok = true
		sum.Running += one.Running
		sum.Waiting += one.Waiting
		sum.Instances = append(sum.Instances, one.Instances...)
		if one.Failed != "" {
			failed++
			sum.Failed = one.Failed
		}
	}
	if failed < len(backends) { // another one can start
		sum.Failed = ""
	}
	return sum, ok
}

// See [agent.Deps].
func (o *offers) serve(w http.ResponseWriter, r *http.Request, service api.FunctionName) {
	backends := o.backends()[service]
	var free []backend
	for _, b := range backends {
		if stats, ok := o.core.Stats(b.Name); ok && agent.Free(stats) > 0 {
			free = append(free, b)
		}
	}
	if len(free) == 0 {
		free = backends
	}
	if len(free) == 0 {
		o.core.ServeAtOnce(w, r, service) // which answers that the function does not exist
		return
	}
	o.core.ServeAtOnce(w, r, draw(free))
}

// By share.
func draw(list []backend) api.FunctionName {
	total := 0
	for _, b := range list {
		total += b.percent
	}
	n := rand.IntN(total)
	for _, b := range list {
		if n -= b.percent; n < 0 {
			return b.Name
		}
	}
	return list[0].Name
}

func (o *offers) emit(e api.Event) {
	var d api.Demand
	if e.Type != api.EventDemand || json.Unmarshal(e.Data, &d) != nil {
		return
	}
	backends := o.backends()[d.Function]
	for name, n := range o.divide(d, backends) {
		part := d
		part.Function, part.Waiting = name, n
		part.Activator = strings.Join([]string{o.pod, d.Activator}, "/") // other agents pass theirs on too
		if d.Waiting > 0 {
			part.WaitingTokens = d.WaitingTokens * api.Tokens(n) / api.Tokens(d.Waiting)
		}
		o.out.Emit(api.NewEvent(api.EventDemand, "/"+part.Activator, name, part))
	}
}

// divide returns how many requests wait for each revision. Earlier ones keep theirs, new ones are drawn. A revision
// that has lost its last one is included once, with 0.
func (o *offers) divide(d api.Demand, backends []backend) map[api.FunctionName]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := wanted{d.Activator, d.Function}
	now, sum := map[api.FunctionName]int{}, 0
	for name, n := range o.drawn[key] {
		now[name] = 0
		if slices.ContainsFunc(backends, func(b backend) bool { return b.Name == name }) {
			now[name] = n
			sum += n
		}
	}
	for ; sum < d.Waiting && len(backends) > 0; sum++ {
		now[draw(backends)]++
	}
	for ; sum > d.Waiting; sum-- { // it is unknown which left
		most := slices.MaxFunc(slices.Sorted(maps.Keys(now)), func(a, b api.FunctionName) int { return cmp.Compare(now[a], now[b]) })
		now[most]--
	}
	kept := maps.Clone(now)
	maps.DeleteFunc(kept, func(_ api.FunctionName, n int) bool { return n == 0 })
	if o.drawn[key] = kept; len(kept) == 0 {
		delete(o.drawn, key)
	}
	return now
}
