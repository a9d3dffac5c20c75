package activator

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
)

// service is one service while a directory is built: the functions with a share of its traffic, and those without. A
// function without an [api.Function.Service] is its own service and takes all of its traffic.
type service struct {
	name     api.FunctionName
	backends []backend // those with a share of the traffic
	everyone []backend
	all      *target // has all backends
}

// backend is an immutable snapshot of a function of a service.
type backend struct {
	f        *queue.Function
	names    []api.ModelName // the model, then its aliases
	adapters []api.ModelName
	percent  int // its share of the requests
	// variantOf is the model that the function is a variant of; empty: none.
	variantOf    api.ModelName
	fullNameOnly bool
}

// servicesOf groups functions by service. Services with traffic come first, so that a new one takes no name from
// them; then they are sorted by name.
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

// newest returns the backend that takes all requests of a service without traffic. Such a service was just created,
// or is faulty, and then the function knows why. Knative numbers revisions so that their names sort by age.
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

// each returns the names of all backends, without duplicates.
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

// target returns a target of the backends for which has returns true; there must be at least one.
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

// target is the referent of a name: a service's functions that have traffic and the name. It is immutable.
type target struct {
	service api.FunctionName
	shares  []backend // at least one; the greatest share first
	total   int
	// variants are the ways to run the model of that name, if it has several; shares then holds the shares of all of
	// them. See [target.choose].
	variants []*target
}

// pick chooses a function at random, weighted by share, or the best variant; nil if t is nil.
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

// first returns the function with the greatest share.
func (t *target) first() *queue.Function { return t.shares[0].f }
