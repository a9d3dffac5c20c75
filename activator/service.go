package activator

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// service is one service while a directory is made: the functions that take its
// traffic, and those that do not. A function without an [api.Function.Service] is
// its own service and takes all of its traffic.
type service struct {
	name     api.FunctionName
	members  []member // those that take traffic
	everyone []member
	all      *target // of all members
}

// member is a function of a service, as it was when the directory was made.
type member struct {
	f        *function
	names    []api.ModelName // the model, then its aliases
	adapters []api.ModelName
	percent  int
	// variantOf is the model that it is one of several ways to run; empty: none.
	variantOf api.ModelName
}

// servicesOf groups functions by service. Those that have traffic come first, so that
// one that is just made takes no name away from them, and then they are ordered by their names.
func servicesOf(list []*function, traffic map[api.FunctionName][]api.Share) []service {
	byName := make(map[api.FunctionName]*service)
	var order []api.FunctionName
	for _, f := range list {
		f.mu.Lock()
		spec, adapters := f.spec, f.adapters()
		f.mu.Unlock()
		name := spec.ServiceName()
		s := byName[name]
		if s == nil {
			s = &service{name: name}
			byName[name] = s
			order = append(order, name)
		}
		m := member{f: f, names: spec.Names(), adapters: adapters, percent: 100, variantOf: spec.VariantOf}
		if spec.Service != "" {
			m.percent = percentOf(traffic[name], f.name)
		}
		s.everyone = append(s.everyone, m)
		if m.percent > 0 {
			s.members = append(s.members, m)
		}
	}
	slices.Sort(order)
	slices.SortStableFunc(order, func(a, b api.FunctionName) int {
		return cmp.Compare(min(1, len(byName[b].members)), min(1, len(byName[a].members)))
	})
	out := make([]service, 0, len(order))
	for _, name := range order {
		s := byName[name]
		if len(s.members) == 0 {
			s.members = []member{s.newest()}
		}
		s.all = s.target(func(member) bool { return true })
		out = append(out, *s)
	}
	return out
}

// newest takes all requests for a service none of whose functions has traffic: it
// was just made, or it is faulty, and then the function knows why. Knative numbers
// revisions so that their names grow.
func (s service) newest() member {
	m := slices.MaxFunc(s.everyone, func(a, b member) int { return cmp.Compare(a.f.name, b.f.name) })
	m.percent = 100
	return m
}

func percentOf(shares []api.Share, name api.FunctionName) int {
	for _, s := range shares {
		if s.Function == name {
			return s.Percent
		}
	}
	return 0
}

// each returns the names of all members, each once.
func (s service) each(names func(member) []api.ModelName) []api.ModelName {
	var out []api.ModelName
	for _, m := range s.members {
		for _, name := range names(m) {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// target makes a target of the members for which has holds: at least one.
func (s service) target(has func(member) bool) *target {
	t := &target{service: s.name}
	for _, m := range s.members {
		if has(m) {
			t.shares = append(t.shares, share{m.f, m.percent})
			t.total += m.percent
		}
	}
	slices.SortStableFunc(t.shares, func(a, b share) int { return cmp.Compare(b.percent, a.percent) })
	return t
}

// target is what a name leads to: those of a service's functions that take traffic
// and have the name. It is immutable.
type target struct {
	service api.FunctionName
	shares  []share // at least one; the greatest first
	total   int
	// variants, where there are any, are the ways to run the model of that name; shares
	// are then those of all of them. See [target.choose].
	variants []*target
}

// share is a function's part of a target.
type share struct {
	f       *function
	percent int
}

// pick chooses a function at random, by the shares, or the best of variants; nil where t is nil.
func (t *target) pick() *function {
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

// first is the function with the greatest share.
func (t *target) first() *function { return t.shares[0].f }
