package door

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// A name's owner is the function with the lowest claim on it, then the oldest:
//
//  1. A function that this machine has, or has created in clusters, has the names in its manifest.
//  2. NAMESPACE/NAME is that function, and NAME the one in the namespace default, even while no agent has it.
//  3. A name that a cluster's declaration allows by its names may go to any of the cluster's functions.
//  4. So may a name that the cluster may serve as a function of the namespace default.
//  5. A name that 3 and 4 give to no cluster may go to any function. But a name with the prefix of a declared
//     namespace belongs to that function alone, by 2.

type claim int

const (
	noClaim claim = iota
	claimHere
	claimOwn
	claimDeclared
	claimDefault
	claimFree
)

func (f *state) claimOf(d Declaration, fn api.FunctionName, name api.ModelName) claim {
	namespace, _, qualified := strings.Cut(string(name), "/")
	switch {
	case fn == asFunction(name):
		return claimOwn
	case qualified && f.declares(namespace):
		return noClaim
	case protocol.Matches(d.Names, string(name)):
		return claimDeclared
	case d.allows(inDefault(name)):
		return claimDefault
	}
	for _, o := range f.clusters {
		if !o.Front && (protocol.Matches(o.Names, string(name)) || o.allows(inDefault(name))) {
			return noClaim
		}
	}
	return claimFree
}

// inDefault returns the function of the namespace default that a name stands for.
func inDefault(name api.ModelName) api.FunctionName {
	return api.NewFunctionName(api.DefaultNamespace, strings.ReplaceAll(string(name), "/", "-"))
}

// asFunction returns the function that a name means if it exists.
func asFunction(name api.ModelName) api.FunctionName {
	if strings.Contains(string(name), "/") {
		return api.FunctionName(name)
	}
	return api.NewFunctionName(api.DefaultNamespace, string(name))
}

// untagged removes the tag that Ollama's clients add.
func untagged(name api.ModelName) api.ModelName {
	return api.ModelName(strings.TrimSuffix(string(name), names.Latest))
}

func (f *state) declares(namespace string) bool {
	for _, c := range f.clusters {
		for _, p := range c.Functions {
			if named, _, qualified := strings.Cut(p, "/"); qualified && named == namespace && !strings.ContainsAny(named, `*?[\\`) {
				return true
			}
		}
	}
	return false
}

// namesIn returns the names that an agent gives a function, as far as they are served.
func namesIn(state protocol.Function) []api.ModelName {
	all := slices.Concat([]api.ModelName{state.Model}, state.Aliases, state.Adapters)
	all = slices.DeleteFunc(all, func(n api.ModelName) bool { return n == "" || n == api.ModelName(state.Name) })
	return all[:min(len(all), protocol.MaxNames)]
}

// claimNames leaves the names of a function without an agent as they are.
func (f *state) claimNames(fn *function) {
	spec := fn.declared()
	if spec == nil && len(fn.offers) == 0 {
		return
	}
	fn.claims = map[api.ModelName]claim{}
	add := func(name api.ModelName, c claim) {
		if old := fn.claims[untagged(name)]; c != noClaim && (old == noClaim || c < old) {
			fn.claims[untagged(name)] = c
		}
	}
	if fn.name.Namespace() == api.DefaultNamespace {
		add(api.ModelName(fn.name.Name()), claimOwn)
	}
	if spec != nil {
		for _, name := range allNames(*spec) {
			add(name, claimHere)
		}
		return
	}
	for _, o := range fn.offers {
		for _, name := range namesIn(o.state) {
			add(name, f.claimOf(o.session.declared, fn.name, untagged(name)))
		}
	}
}

func allNames(spec api.Function) []api.ModelName {
	all := spec.Names()
	for _, a := range spec.Runtime.Adapters {
		all = append(all, a.Name)
	}
	return all
}

func byAge(all iter.Seq[*function]) []*function {
	return slices.SortedFunc(all, func(a, b *function) int { return cmp.Compare(a.born, b.born) })
}

func (f *state) assignNames() {
	before := f.owners
	f.owners = map[api.ModelName]api.FunctionName{}
	list := byAge(maps.Values(f.functions))
	for _, fn := range list {
		f.claimNames(fn)
	}
	for by := claimHere; by <= claimFree; by++ {
		for _, fn := range list {
			for name, c := range fn.claims {
				if _, taken := f.owners[name]; c == by && !taken {
					f.owners[name] = fn.name
				}
			}
		}
	}
	changed := func(name api.ModelName) {
		for _, owner := range []api.FunctionName{before[name], f.owners[name]} {
			if fn := f.functions[owner]; fn != nil && before[name] != f.owners[name] {
				f.markStale(fn)
			}
		}
	}
	for name := range before {
		changed(name)
	}
	for name := range f.owners {
		changed(name)
	}
	f.reportRefusals()
}

func (f *state) has(fn api.FunctionName, name api.ModelName) bool {
	return f.owners[untagged(name)] == fn || untagged(name) == api.ModelName(fn)
}

func (f *state) reportRefusals() {
	for _, s := range f.sessions {
		all := map[protocol.Refusal]bool{}
		for name := range s.denied {
			all[protocol.Refusal{Function: name, Reason: "it is not among the functions that the front door declares for this cluster"}] = true
		}
		for _, fn := range f.functions {
			o := fn.offers[s.agent()]
			if o == nil || o.session != s || fn.declared() != nil {
				continue
			}
			if len(o.state.Aliases)+len(o.state.Adapters) > protocol.MaxNames {
				all[protocol.Refusal{Function: fn.name, Reason: fmt.Sprintf("it has more than %d names: the others are not served here", protocol.MaxNames)}] = true
			}
			for _, name := range namesIn(o.state) {
				if why := f.unnamed(s.declared, fn.name, untagged(name)); why != "" && len(all) < protocol.MaxFunctions {
					all[protocol.Refusal{Function: fn.name, Reason: why}] = true
				}
			}
		}
		for r := range all {
			if !s.refusals[r] && len(s.refused) < maxDemands {
				f.log.Warn("a cluster offers what it may not serve", "cluster", s.hello.Cluster, "function", r.Function, "reason", r.Reason)
				s.refused = append(s.refused, r)
				s.wake.Ring()
			}
		}
		s.refusals = all
	}
}

func (f *state) unnamed(d Declaration, fn api.FunctionName, name api.ModelName) string {
	owner := f.owners[name]
	switch claimed := f.claimOf(d, fn, name); {
	case owner == fn:
		return ""
	case owner != "":
		return "the name " + string(name) + " is that of " + string(owner)
	case claimed == noClaim && f.declares(asFunction(name).Namespace()) && strings.Contains(string(name), "/"):
		return "the name " + string(name) + " is that of the function " + string(name) + ", which is not here: choose another name"
	default:
		return "the name " + string(name) + " is declared for other clusters: add it to this one's names in the front door's clusters.yaml, or ask for " + string(fn)
	}
}
