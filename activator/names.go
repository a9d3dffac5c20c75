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
	domain string // of functions' own hosts; empty: they have none
	// list is all functions, by name.
	list []*function
	// byModel has, in order of precedence where names clash: models' names and aliases,
	// models with variants, services' names in the default namespace, in any namespace, "namespace/name",
	// and adapters. Among equals a service with traffic has it, and of several the first by name.
	byModel map[string]*target
	byName  map[api.FunctionName]*function
	// models is what a list of models shows: model names, aliases and adapters, in order.
	models []listed
	// adapters are the names by which each function's adapters are found.
	adapters map[adapterOf]bool
	// groups are the models with variants that a function is one of.
	groups map[*function]*target
	// clashes say which names find another service than one that has them too.
	clashes []string
}

// adapterOf is an adapter's name at one function.
type adapterOf struct {
	f    *function
	name string
}

// listed is one name in the list of models.
type listed struct {
	name api.ModelName
	t    *target
	// parent is the model that an adapter belongs to; empty for a model.
	parent api.ModelName
}

func newDirectory(list []*function, traffic map[api.FunctionName][]api.Share, domain string) *directory {
	slices.SortFunc(list, func(a, b *function) int { return cmp.Compare(a.name, b.name) })
	d := &directory{
		domain: domain, list: list, byModel: make(map[string]*target), byName: make(map[api.FunctionName]*function),
		adapters: make(map[adapterOf]bool), groups: make(map[*function]*target),
	}
	if domain == NoDomain {
		d.domain = ""
	}
	for _, f := range list {
		d.byName[f.name] = f
	}
	services := servicesOf(list, traffic)
	for _, names := range []func(member) []api.ModelName{
		func(m member) []api.ModelName { return m.names[:1] },
		func(m member) []api.ModelName { return m.names[1:] },
	} {
		for _, s := range services {
			for _, name := range s.each(names) {
				d.show(listed{name: name, t: s.target(func(m member) bool { return slices.Contains(m.names, name) })})
			}
		}
	}
	d.addVariants(services)
	d.addServices(services)
	d.addAdapters(services)
	slices.SortFunc(d.models, func(a, b listed) int { return cmp.Compare(a.name, b.name) })
	return d
}

// addServices adds the names of the services themselves.
func (d *directory) addServices(services []service) {
	for _, own := range []bool{true, false} {
		for _, s := range services {
			if own == (s.name.Namespace() == api.DefaultNamespace) {
				d.add(s.name.Name(), s.all)
			}
		}
	}
	for _, s := range services {
		d.add(string(s.name), s.all)
	}
}

// addAdapters adds the adapters, at the front door and at their functions' own hosts.
func (d *directory) addAdapters(services []service) {
	for _, s := range services {
		for _, m := range s.everyone {
			for _, name := range m.adapters {
				if t := d.byModel[string(name)]; t == nil || !t.has(m.f) {
					d.adapters[adapterOf{m.f, string(name)}] = true
				}
			}
		}
	}
	for _, s := range services {
		for _, name := range s.each(func(m member) []api.ModelName { return m.adapters }) {
			has := func(m member) bool { return slices.Contains(m.adapters, name) }
			d.show(listed{name: name, t: s.target(has), parent: s.members[slices.IndexFunc(s.members, has)].names[0]})
		}
	}
}

// add makes a name lead to t, unless it leads elsewhere already.
func (d *directory) add(name string, t *target) bool {
	if _, taken := d.byModel[name]; taken {
		return false
	}
	d.byModel[name] = t
	return true
}

// show adds a name that people choose, and that a list of models shows.
func (d *directory) show(m listed) {
	if d.add(string(m.name), m.t) {
		d.models = append(d.models, m)
		return
	}
	if other := d.byModel[string(m.name)]; other.service != m.t.service || m.parent != "" {
		d.clashes = append(d.clashes, fmt.Sprintf("the name %s of %s finds %s", quoteName(string(m.name)), m.owner(), other.service))
	}
}

// owner says whose name it is, for people.
func (m listed) owner() string {
	if m.parent != "" {
		return fmt.Sprintf("an adapter of %s", m.t.service)
	}
	return string(m.t.service)
}

// model finds the function that serves a request which names a model.
func (d *directory) model(name string) (*function, *api.Error) {
	t, err := d.find(name)
	if err != nil {
		return nil, err
	}
	return t.pick(), nil
}

// find finds what a name that a client wrote in "model" leads to.
func (d *directory) find(name string) (*target, *api.Error) {
	if t := d.byModel[name]; t != nil {
		return t, nil
	}
	if t := d.untagged(name); t != nil && t.first().runtime() == api.RuntimeOllama {
		return t, nil
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

// untagged finds what a name leads to, to which a client of Ollama added the tag "latest".
func (d *directory) untagged(name string) *target {
	if short, found := strings.CutSuffix(name, latest); found {
		return d.byModel[short]
	}
	return nil
}

// adapter is the adapter of f that a client names, "" for the model itself.
func (d *directory) adapter(name string, f *function) api.ModelName {
	if len(d.adapters) == 0 {
		return ""
	}
	for _, n := range []string{name, strings.TrimSuffix(name, latest)} {
		if d.adapters[adapterOf{f, n}] {
			return api.ModelName(n)
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
	if d.domain == "" || n <= 0 || host[n] != '.' || !strings.EqualFold(host[n+1:], d.domain) {
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
