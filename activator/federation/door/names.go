package door

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// The owners of names are computed again from all declarations and offers whenever one of these changes:
//
//  1. A function that this machine has, or has created in clusters, has the names in its manifest.
//  2. NAMESPACE/NAME is that function, and NAME the one in the namespace default, even while no agent has it.
//  3. A name that a cluster's declaration allows by its names may go to any of the cluster's functions.
//  4. So may a name that the cluster may serve as a function of the namespace default.
//  5. A name that 3 and 4 give to no cluster may go to any function. But a name with the prefix of a declared
//     namespace belongs to that function alone, by 2.
//
// Among the functions that may have a name, the first rule in this list wins, then the oldest function.

// claim is the number of the rule by which a function may have a name: the lowest counts.
type claim int

const (
	noClaim claim = iota
	claimHere
	claimOwn
	claimDeclared
	claimDefault
	claimFree
)

// claimOf returns the claim of a cluster's function on a name.
func (f *Front) claimOf(d Declaration, fn api.FunctionName, name api.ModelName) claim {
	namespace, _, qualified := strings.Cut(string(name), "/")
	switch {
	case fn == asFunction(name):
		return claimOwn
	case qualified && f.namespaces[namespace]:
		return noClaim
	case matches(d.Names, string(name)):
		return claimDeclared
	case d.allows(inDefault(name)):
		return claimDefault
	}
	for _, o := range f.declared {
		if !o.Front && (matches(o.Names, string(name)) || o.allows(inDefault(name))) {
			return noClaim
		}
	}
	return claimFree
}

// inDefault returns the function of the namespace default that a name, possibly with a slash, stands for.
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

// wanted returns the names that an agent gives a function.
func (o *offer) wanted() []api.ModelName {
	all := append([]api.ModelName{o.state.Model}, o.state.Aliases...)
	return slices.DeleteFunc(append(all, o.state.Adapters...), func(n api.ModelName) bool { return n == "" || n == api.ModelName(o.state.Name) })
}

// declaredHere returns the function as this machine declares it; nil: it does not. The caller holds mu.
func (f *Front) declaredHere(fn *function) *api.Function {
	switch n := f.near[fn.name]; {
	case fn.placed != nil:
		return &fn.placed.spec
	case n != nil:
		return &n.spec
	}
	return nil
}

// claims computes the names that a function may have, by its agents and this machine. Without an agent they stay as
// they are. The caller holds mu.
func (f *Front) claims(fn *function) {
	spec := f.declaredHere(fn)
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
		for _, name := range o.wanted() {
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

// settle computes the owners of names. It tells the activator of functions whose names have changed, and agents of
// refusals. The caller holds mu.
func (f *Front) settle() (tell []func()) {
	before := f.owners
	f.owners = map[api.ModelName]api.FunctionName{}
	for name, n := range f.near {
		if f.functions[name] == nil {
			for _, has := range allNames(n.spec) {
				f.owners[untagged(has)] = name
			}
		}
	}
	list := slices.SortedFunc(maps.Values(f.functions), func(a, b *function) int { return cmp.Compare(a.born, b.born) })
	for _, fn := range list {
		f.claims(fn)
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
	renamed := map[api.FunctionName]bool{}
	for name := range f.owners {
		if before[name] != f.owners[name] {
			renamed[before[name]], renamed[f.owners[name]] = true, true
		}
	}
	for name, owner := range before {
		renamed[owner] = renamed[owner] || f.owners[name] != owner
	}
	for _, fn := range list {
		if renamed[fn.name] {
			tell = append(tell, f.sync(fn)...)
			for _, o := range fn.offers {
				tell = append(tell, f.observe(o, ""))
			}
		}
	}
	f.refuse()
	return tell
}

// has reports whether a function has a name. The caller holds mu.
func (f *Front) has(fn api.FunctionName, name api.ModelName) bool {
	return f.owners[untagged(name)] == fn || untagged(name) == api.ModelName(fn)
}

// refuse tells agents which of their offered functions and names are refused, and why. The caller holds mu.
func (f *Front) refuse() {
	for _, s := range f.sessions {
		all := map[protocol.Refusal]bool{}
		for name := range s.denied {
			all[protocol.Refusal{Function: name, Reason: "it is not among the functions that the front door declares for this cluster"}] = true
		}
		for _, fn := range f.functions {
			o := fn.offers[s.agent()]
			if o == nil || o.session != s || f.declaredHere(fn) != nil {
				continue
			}
			for _, name := range o.wanted() {
				if why := f.unnamed(s.declared, fn.name, untagged(name)); why != "" && len(all) < protocol.MaxFunctions {
					all[protocol.Refusal{Function: fn.name, Reason: why}] = true
				}
			}
		}
		for r := range all {
			if !s.refusals[r] {
				f.log.Warn("a cluster offers what it may not serve", "cluster", s.hello.Cluster, "function", r.Function, "reason", r.Reason)
				s.refused = append(s.refused, r)
				s.nudge()
			}
		}
		s.refusals = all
	}
}

// unnamed returns why a cluster's function does not have a name; empty: it has. The caller holds mu.
func (f *Front) unnamed(d Declaration, fn api.FunctionName, name api.ModelName) string {
	owner := f.owners[name]
	switch claimed := f.claimOf(d, fn, name); {
	case owner == fn:
		return ""
	case owner != "":
		return "the name " + string(name) + " is that of " + string(owner)
	case claimed == noClaim && f.namespaces[asFunction(name).Namespace()] && strings.Contains(string(name), "/"):
		return "the name " + string(name) + " is that of the function " + string(name) + ", which is not here: choose another name"
	default:
		return "the name " + string(name) + " is declared for other clusters: add it to this one's names in the front door's clusters.yaml, or ask for " + string(fn)
	}
}
