package activator

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/near"
)

// directory finds functions by what clients write. It is immutable, so that
// requests share it without a lock.
type directory struct {
	domain string
	// list is all functions, by name.
	list []*function
	// byModel has, in order of precedence where names clash: models' names, aliases,
	// functions' names in the default namespace, in any namespace, "namespace/name",
	// and adapters. Among equals the function that comes first by name has it.
	byModel map[string]*function
	byName  map[api.FunctionName]*function
	// models is what a list of models shows: model names, aliases and adapters, in order.
	models []listed
	// adapters are the names in byModel that are adapters'.
	adapters map[string]api.ModelName
	// clashes say which names find another function than one that has them too.
	clashes []string
}

// listed is one name in the list of models.
type listed struct {
	name api.ModelName
	f    *function
	// parent is the model that an adapter belongs to; empty for a model.
	parent api.ModelName
}

func newDirectory(list []*function, domain string) *directory {
	slices.SortFunc(list, func(a, b *function) int { return cmp.Compare(a.name, b.name) })
	d := &directory{domain: domain, list: list, byModel: make(map[string]*function), byName: make(map[api.FunctionName]*function), adapters: make(map[string]api.ModelName)}
	specs := make([]api.Function, len(list))
	adapters := make([][]api.ModelName, len(list))
	for i, f := range list {
		f.mu.Lock()
		specs[i], adapters[i] = f.spec, f.adapters()
		f.mu.Unlock()
		d.byName[f.name] = f
		d.show(listed{name: specs[i].Model, f: f})
	}
	for i, f := range list {
		for _, alias := range specs[i].Aliases {
			d.show(listed{name: alias, f: f})
		}
	}
	for _, own := range []bool{true, false} {
		for _, f := range list {
			if own == (f.name.Namespace() == api.DefaultNamespace) {
				d.add(f.name.Name(), f)
			}
		}
	}
	for _, f := range list {
		d.add(string(f.name), f)
	}
	for i, f := range list {
		for _, name := range adapters[i] {
			d.show(listed{name: name, f: f, parent: specs[i].Model})
		}
	}
	slices.SortFunc(d.models, func(a, b listed) int { return cmp.Compare(a.name, b.name) })
	return d
}

// add makes a name find f, unless it finds another already.
func (d *directory) add(name string, f *function) bool {
	if _, taken := d.byModel[name]; taken {
		return false
	}
	d.byModel[name] = f
	return true
}

// show adds a name that people choose, and that a list of models shows.
func (d *directory) show(m listed) {
	if d.add(string(m.name), m.f) {
		d.models = append(d.models, m)
		if m.parent != "" {
			d.adapters[string(m.name)] = m.name
		}
		return
	}
	if other := d.byModel[string(m.name)]; other != m.f || m.parent != "" {
		d.clashes = append(d.clashes, fmt.Sprintf("the name %s of %s finds %s", quoteName(string(m.name)), m.owner(), other.name))
	}
}

// owner says whose name it is, for people.
func (m listed) owner() string {
	if m.parent != "" {
		return fmt.Sprintf("an adapter of %s", m.f.name)
	}
	return string(m.f.name)
}

// model finds a function by what a client wrote in "model".
func (d *directory) model(name string) (*function, *api.Error) {
	if f := d.byModel[name]; f != nil {
		return f, nil
	}
	if f := d.untagged(name); f != nil && f.runtime() == api.RuntimeOllama {
		return f, nil
	}
	if name == "" {
		return nil, api.BadRequest("model", "the field model is missing or empty: GET /v1/models lists the names")
	}
	e := api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "the model %s does not exist", quoteName(name))
	e.Param = "model"
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

// untagged finds a function by a name to which a client of Ollama added the tag "latest".
func (d *directory) untagged(name string) *function {
	if short, found := strings.CutSuffix(name, latest); found {
		return d.byModel[short]
	}
	return nil
}

// adapter is the adapter of f that a client names, "" for the model itself.
func (d *directory) adapter(name string, f *function) api.ModelName {
	for _, n := range []string{name, strings.TrimSuffix(name, latest)} {
		if d.byModel[n] == f {
			return d.adapters[n]
		}
	}
	return ""
}

// quoteName quotes a name that a client wrote, cut to a length that fits a message.
func quoteName(name string) string {
	const most = 100
	if len(name) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(name[:most], ""))
	}
	return fmt.Sprintf("%q", name)
}

// ownHost says whether host is one of functions' own, NAME.NAMESPACE.DOMAIN, and not the front door.
func (d *directory) ownHost(host string) (rest string, own bool) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(host, ".")
	n := len(host) - len(d.domain) - 1
	if n <= 0 || host[n] != '.' || !strings.EqualFold(host[n+1:], d.domain) {
		return "", false
	}
	rest = host[:n]
	return rest, strings.Contains(rest, ".")
}

// host finds a function by its own host.
func (d *directory) host(host string) (*function, *api.Error) {
	rest, _ := d.ownHost(host)
	name, namespace, _ := strings.Cut(strings.ToLower(rest), ".")
	if f := d.byName[api.NewFunctionName(namespace, name)]; f != nil {
		return f, nil
	}
	known := make([]string, 0, len(d.list))
	for _, f := range d.list {
		known = append(known, f.name.Name()+"."+f.name.Namespace()+"."+d.domain)
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

// nearest returns up to most of names that are like name, the nearest first.
func nearest(name string, names []string, most int) []string {
	type match struct {
		name     string
		distance int
	}
	limit := max(2, len(name)/3)
	var found []match
	low := strings.ToLower(name)
	for _, n := range names {
		d := near.Distance(low, strings.ToLower(n), limit)
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
