// Package names decides which service owns a name at the front door if several declare it:
//
//  1. NAMESPACE/NAME always means the service of that name.
//  2. A name with the prefix of another namespace is refused.
//  3. The oldest service that declares a name owns it; one of unknown age is the youngest. Among services of equal age
//     [Kind] decides, then the order of the declarations.
//
// A name and the same name with Ollama's tag "latest" are equal. The package is pure and safe for concurrent use.
package names

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Kind is the use for which a service declares a name.
type Kind int

// In order of precedence among services of equal age.
const (
	Model Kind = iota
	Alias
	Variant // the model that functions of the service's namespace are variants of
	Default // its own name, in the default namespace
	Own     // its own name, in another one
	Adapter
)

// Declaration is one name that a service declares.
type Declaration struct {
	Service api.FunctionName
	// Created is zero if unknown.
	Created time.Time
	Name    api.ModelName
	Kind    Kind
}

// Loss is a declared name that the service does not own.
type Loss struct {
	Declaration
	// Holder is the owner; empty: the name is refused because of its prefix.
	Holder api.FunctionName
}

func (l Loss) String() string {
	what := fmt.Sprintf("the name %q of %s", l.Name, l.Service)
	if l.Kind == Adapter {
		what = fmt.Sprintf("the name %q of an adapter of %s", l.Name, l.Service)
	}
	switch namespace, _, _ := strings.Cut(string(l.Name), "/"); {
	case l.Holder == "":
		return fmt.Sprintf("%s is refused: %s/ is the namespace %s: choose another name", what, namespace, namespace)
	case l.Holder == l.Service:
		return fmt.Sprintf("%s finds %s itself: choose another name", what, l.Holder)
	case untagged(l.Name) == string(l.Holder):
		return fmt.Sprintf("%s finds %s, which is called so: choose another name", what, l.Holder)
	}
	return fmt.Sprintf("%s finds %s, which was there first: choose another name, or ask for %s", what, l.Holder, l.Service)
}

// Settle decides which of declared own their names: has[i] is of declared[i]. losses do not have the kinds [Default] and
// [Own], which are implied. namespace reports whether a namespace exists besides those of the services.
func Settle(declared []Declaration, namespace func(string) bool) (has []bool, losses []Loss) {
	namespaces, services, holders := map[string]bool{}, map[string]bool{}, map[string]holder{}
	order := make([]int, len(declared))
	for i, c := range declared {
		order[i] = i
		namespaces[c.Service.Namespace()] = true
		if c.Kind != Variant {
			services[string(c.Service)] = true
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := declared[i], declared[j]
		return cmp.Or(older(a.Created, b.Created), cmp.Compare(a.Kind, b.Kind))
	})
	found := make([]holder, len(declared))
	for _, i := range order {
		c := declared[i]
		name := untagged(c.Name)
		prefix, _, full := strings.Cut(name, "/")
		who, taken := holders[name]
		switch {
		case services[name]: // 1
			who = holder{api.FunctionName(name), Own}
		case full && prefix != c.Service.Namespace() && (namespaces[prefix] || namespace(prefix)): // 2
			who = holder{}
		case !taken: // 3
			who = holder{c.Service, c.Kind}
			holders[name] = who
		}
		found[i] = who
	}
	has = make([]bool, len(declared))
	for i, c := range declared {
		who := found[i]
		has[i] = who.service == c.Service && who.kind.group() == c.Kind.group()
		if !has[i] && c.Kind != Default && c.Kind != Own {
			losses = append(losses, Loss{Declaration: c, Holder: who.service})
		}
	}
	return has, losses
}

func older(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

type holder struct {
	service api.FunctionName
	kind    Kind
}

// group separates uses for which one service can't share a name.
func (k Kind) group() Kind {
	if k == Variant || k == Adapter {
		return k
	}
	return Model
}

// Latest is the tag that Ollama's clients add to a name without one.
const Latest = ":latest"

func untagged(name api.ModelName) string { return strings.TrimSuffix(string(name), Latest) }
