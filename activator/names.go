package activator

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// directory finds functions by the names that clients send. It is immutable.
type directory struct {
	domain string
	// By name.
	list []*queue.Function
	// Services, and models with variants.
	byModel map[string]*target
	byName  map[api.FunctionName]*queue.Function
	// Sorted.
	models   []listed
	adapters map[adapterOf]bool
	groups   map[*queue.Function]*queue.Group
	// prefixes are the parts before a slash in names.
	services map[api.FunctionName]bool
	prefixes map[string]bool
	lost     []names.Loss
}

type adapterOf struct {
	f    *queue.Function
	name string
}

type listed struct {
	name api.ModelName
	t    *target
	// The model of an adapter; empty: this is a model.
	parent api.ModelName
}

func newDirectory(list []*queue.Function, known *cluster, domain string) *directory {
	slices.SortFunc(list, func(a, b *queue.Function) int { return cmp.Compare(a.Name, b.Name) })
	d := &directory{
		domain: domain, list: list, byModel: make(map[string]*target), byName: make(map[api.FunctionName]*queue.Function),
		adapters: make(map[adapterOf]bool), groups: make(map[*queue.Function]*queue.Group),
		services: make(map[api.FunctionName]bool), prefixes: make(map[string]bool),
	}
	if domain == NoDomain {
		d.domain = ""
	}
	for _, f := range list {
		d.byName[f.Name] = f
	}
	services := servicesOf(list, known.traffic)
	for _, s := range services {
		d.byModel[string(s.name)] = s.all
		d.services[s.name] = true
	}
	wanted := d.wanted(services, known.created)
	declared := make([]names.Declaration, len(wanted))
	for i, w := range wanted {
		declared[i] = w.name
		if prefix, _, found := strings.Cut(string(w.name.Name), "/"); found {
			d.prefixes[prefix] = true
		}
	}
	has, lost := names.Settle(declared, func(namespace string) bool { return known.namespaces[namespace] })
	d.lost = lost
	named := make(map[api.FunctionName]bool)
	for i, w := range wanted {
		if has[i] && d.add(w) && w.parent == "" {
			named[w.name.Service] = true
		}
	}
	for _, s := range services {
		if !named[s.name] { // still reachable by its full name
			d.models = append(d.models, listed{name: api.ModelName(s.name), t: s.all})
		}
	}
	slices.SortFunc(d.models, func(a, b listed) int { return cmp.Compare(a.name, b.name) })
	return d
}

// wish is a name that a service declared.
type wish struct {
	name names.Declaration
	t    *target
	// The model of an adapter; empty: this is a model.
	parent api.ModelName
}

func (d *directory) wanted(services []service, created map[api.FunctionName]time.Time) (all []wish) {
	for _, s := range services {
		want := func(kind names.Kind, name api.ModelName, t *target, parent api.ModelName) {
			all = append(all, wish{names.Declaration{Service: s.name, Created: created[s.name], Name: name, Kind: kind}, t, parent})
		}
		for kind, of := range []func(backend) []api.ModelName{
			names.Model: func(m backend) []api.ModelName { return m.names[:1] },
			names.Alias: func(m backend) []api.ModelName { return m.names[1:] },
		} {
			for _, name := range s.each(of) {
				want(names.Kind(kind), name, s.target(func(m backend) bool { return slices.Contains(m.names, name) }), "")
			}
		}
		own := names.Own
		if s.name.Namespace() == api.DefaultNamespace {
			own = names.Default
		}
		if !s.everyone[0].fullNameOnly {
			want(own, api.ModelName(s.name.Name()), s.all, "")
		}
		for _, name := range s.each(func(m backend) []api.ModelName { return m.adapters }) {
			has := func(m backend) bool { return slices.Contains(m.adapters, name) }
			want(names.Adapter, name, s.target(has), s.backends[slices.IndexFunc(s.backends, has)].names[0])
		}
		for _, m := range s.everyone {
			for _, name := range m.adapters {
				d.adapters[adapterOf{m.f, string(name)}] = !slices.Contains(m.names, name) && name != m.variantOf && name != api.ModelName(s.name.Name())
			}
		}
	}
	return append(all, d.variants(services, created)...)
}

// add reports whether lists show the name: people chose it.
func (d *directory) add(w wish) bool {
	name := string(w.name.Name)
	if d.byModel[name] != nil { // the service uses the name for something else
		return false
	}
	d.byModel[name] = w.t
	if w.name.Kind == names.Own || w.name.Kind == names.Default {
		return false
	}
	d.models = append(d.models, listed{name: w.name.Name, t: w.t, parent: w.parent})
	return true
}

// lostBy describes the names that a service or model with variants did not get.
func (d *directory) lostBy(spec *api.Function) (lost []string) {
	service := spec.ServiceName()
	group := api.NewFunctionName(service.Namespace(), string(spec.VariantOf))
	for _, l := range d.lost {
		if variant := l.Kind == names.Variant; variant && l.Service == group || !variant && l.Service == service {
			lost = append(lost, l.String())
		}
	}
	return lost
}

// model is find and pick.
func (d *directory) model(name string, list bool) (*queue.Function, *api.Error) {
	t, err := d.find(name, list)
	if err != nil {
		return nil, err
	}
	return t.pick(), nil
}

// list: the caller may see all names, and the error suggests similar ones.
func (d *directory) find(name string, list bool) (*target, *api.Error) {
	if t := d.byModel[name]; t != nil {
		return t, nil
	}
	if t := d.untagged(name); t != nil && t.first().Spec().Runtime.Kind == api.RuntimeOllama {
		return t, nil
	}
	if (name == "" || name == api.DefaultModel) && len(d.services) == 1 {
		return d.byModel[string(d.list[0].Spec().ServiceName())], nil
	}
	if name == "" {
		return nil, api.BadRequest("model", "the field model is missing or empty: GET /v1/models lists the names")
	}
	e := api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "the model %s does not exist", quoteName(name))
	e.Param = "model"
	if !list {
		return nil, e
	}
	names := make([]string, len(d.models))
	for i, m := range d.models {
		names[i] = string(m.name)
	}
	if like := nearest(name, names, 3); len(like) > 0 {
		e.Message += ": did you mean " + strings.Join(like, " or ") + "?"
	}
	e.Message += " (GET /v1/models lists the names)"
	return nil, e
}

// Ollama's clients add the tag "latest".
func (d *directory) untagged(name string) *target {
	if short, found := strings.CutSuffix(name, names.Latest); found {
		return d.byModel[short]
	}
	return nil
}

// "": the model itself
func (d *directory) adapter(name string, f *queue.Function) api.ModelName {
	if len(d.adapters) == 0 {
		return ""
	}
	for _, n := range []string{name, strings.TrimSuffix(name, names.Latest)} {
		if d.adapters[adapterOf{f, n}] {
			return api.ModelName(n)
		}
	}
	return ""
}

func quoteName(name string) string {
	const most = 100
	if len(name) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(name[:most], ""))
	}
	return fmt.Sprintf("%q", name)
}

// ownHost reports whether host is NAME.NAMESPACE.DOMAIN.
func (d *directory) ownHost(host string) (rest string, own bool) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(host, ".")
	n := len(host) - len(d.domain) - 1
	if d.domain == "" || n <= 0 || host[n] != '.' || !strings.EqualFold(host[n+1:], d.domain) {
		return "", false
	}
	rest = host[:n]
	return rest, strings.Contains(rest, ".")
}

// list: the error names the existing hosts.
func (d *directory) host(host string, list bool) (*queue.Function, *api.Error) {
	rest, _ := d.ownHost(host)
	name, namespace, _ := strings.Cut(strings.ToLower(rest), ".")
	if f := d.byName[api.NewFunctionName(namespace, name)]; f != nil {
		return f, nil
	}
	if !list {
		return nil, api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "no function has the host %s", quoteName(host))
	}
	known := make([]string, 0, len(d.list))
	for _, f := range d.list {
		known = append(known, f.Name.Name()+"."+f.Name.Namespace()+"."+d.domain)
	}
	e := api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "no function has the host %s", quoteName(host))
	const most = 10
	switch {
	case len(known) > most:
		e.Message += fmt.Sprintf(": known are %s and %d more", strings.Join(known[:most], ", "), len(known)-most)
	case len(known) > 0:
		e.Message += ": known are " + strings.Join(known, ", ")
	default:
		e.Message += ": there are no functions"
	}
	return nil, e
}

func nearest(name string, known []string, most int) []string {
	type match struct {
		name     string
		distance int
	}
	limit := max(2, len(name)/3)
	var found []match
	low := strings.ToLower(name)
	for _, n := range known {
		d := names.Distance(low, strings.ToLower(n), limit)
		if d > limit && len(low) >= 3 && strings.Contains(strings.ToLower(n), low) {
			d = limit // a part of the name
		}
		if d <= limit {
			found = append(found, match{n, d})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int { return cmp.Compare(a.distance, b.distance) })
	out := make([]string, 0, most)
	for _, m := range found[:min(len(found), most)] {
		out = append(out, m.name)
	}
	return out
}

// A function without [api.Function.Service] is its own service.
type service struct {
	name     api.FunctionName
	backends []backend // with a share of the traffic
	everyone []backend
	all      *target
}

type backend struct {
	f            *queue.Function
	names        []api.ModelName // the model, then its aliases
	adapters     []api.ModelName
	percent      int
	variantOf    api.ModelName
	fullNameOnly bool
}

// Services with traffic come first: a new one takes no name from them.
func servicesOf(list []*queue.Function, traffic map[api.FunctionName][]Share) []service {
	byName := make(map[api.FunctionName]*service)
	var order []api.FunctionName
	for _, f := range list {
		spec, adapters := f.Spec(), f.Adapters()
		name := spec.ServiceName()
		s := byName[name]
		if s == nil {
			s = &service{name: name}
			byName[name] = s
			order = append(order, name)
		}
		m := backend{f: f, names: spec.Names(), adapters: adapters, percent: 100, variantOf: spec.VariantOf, fullNameOnly: spec.FullNameOnly}
		if spec.Service != "" {
			m.percent = percentOf(traffic[name], f.Name)
		}
		s.everyone = append(s.everyone, m)
		if m.percent > 0 {
			s.backends = append(s.backends, m)
		}
	}
	slices.Sort(order)
	slices.SortStableFunc(order, func(a, b api.FunctionName) int {
		return cmp.Compare(min(1, len(byName[b].backends)), min(1, len(byName[a].backends)))
	})
	out := make([]service, 0, len(order))
	for _, name := range order {
		s := byName[name]
		if len(s.backends) == 0 {
			s.backends = []backend{s.newest()}
		}
		s.all = s.target(func(backend) bool { return true })
		out = append(out, *s)
	}
	return out
}

// newest is for a service without traffic, just created or faulty. Knative numbers revisions: their names sort by
// age.
func (s service) newest() backend {
	m := slices.MaxFunc(s.everyone, func(a, b backend) int { return cmp.Compare(a.f.Name, b.f.Name) })
	m.percent = 100
	return m
}

func percentOf(shares []Share, name api.FunctionName) int {
	for _, s := range shares {
		if s.Function == name {
			return s.Percent
		}
	}
	return 0
}

func (s service) each(names func(backend) []api.ModelName) []api.ModelName {
	var out []api.ModelName
	for _, m := range s.backends {
		for _, name := range names(m) {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// One backend must have it.
func (s service) target(has func(backend) bool) *target {
	t := &target{service: s.name}
	for _, m := range s.backends {
		if has(m) {
			t.shares = append(t.shares, m)
			t.total += m.percent
		}
	}
	slices.SortStableFunc(t.shares, func(a, b backend) int { return cmp.Compare(b.percent, a.percent) })
	return t
}

// target is the referent of a name: functions with traffic. It is immutable.
type target struct {
	service api.FunctionName
	shares  []backend // at least one; the greatest share first
	total   int
	// If there are variants, shares has those of all of them.
	variants []*target
}

// pick chooses at random, weighted by share, or the best variant.
func (t *target) pick() *queue.Function {
	switch {
	case t == nil:
		return nil
	case len(t.variants) > 0:
		return t.choose()
	case len(t.shares) == 1:
		return t.shares[0].f
	}
	n := rand.IntN(t.total)
	for _, s := range t.shares {
		if n -= s.percent; n < 0 {
			return s.f
		}
	}
	panic("activator: the shares of a target add up to less than their total")
}

// The greatest share.
func (t *target) first() *queue.Function { return t.shares[0].f }
