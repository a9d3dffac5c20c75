package activator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Traffic divides the requests for a service among its functions. On one machine every function is its own service.
type Traffic struct {
	Service api.FunctionName
	// Empty: no revision is ready.
	Shares []Share
}

type Share struct {
	Function api.FunctionName
	// A service's shares add up to 100.
	Percent int
}

// PutTraffic replaces the traffic of a service: each request is divided among the functions that have its name.
// Waiting requests stay. It matters only with [api.Function.Service].
func (a *Activator) PutTraffic(t Traffic) {
	var shares []Share
	for _, s := range t.Shares {
		at := slices.IndexFunc(shares, func(o Share) bool { return o.Function == s.Function })
		switch {
		case s.Percent <= 0:
		case at >= 0:
			shares[at].Percent += s.Percent
		default:
			shares = append(shares, s)
		}
	}
	if put(a, a.cluster.traffic, t.Service, shares, slices.Equal) {
		a.index()
	}
}

// RemoveTraffic leaves the functions to [Activator.ServeFunction].
func (a *Activator) RemoveTraffic(service api.FunctionName) {
	if remove(a, a.cluster.traffic, service) {
		a.index()
	}
}

// PutService sets the age of a service: the oldest that wants a name gets it; one of unknown age is the youngest.
func (a *Activator) PutService(service api.FunctionName, created time.Time) {
	if put(a, a.cluster.created, service, created, time.Time.Equal) && a.names.Load().services[service] { // otherwise it has no functions yet
		a.index()
	}
}

// RemoveService forgets the age of a deleted service.
func (a *Activator) RemoveService(service api.FunctionName) {
	if remove(a, a.cluster.created, service) && a.names.Load().services[service] {
		a.index()
	}
}

// SetNamespace sets whether a namespace, besides those of functions, can be part of a model's name.
func (a *Activator) SetNamespace(name string, there bool) {
	changed := !there && remove(a, a.cluster.namespaces, name)
	if there {
		changed = put(a, a.cluster.namespaces, name, true, func(x, y bool) bool { return x == y })
	}
	if changed && a.names.Load().prefixes[name] { // otherwise no name has that prefix
		a.index()
	}
}

func put[K comparable, V any](a *Activator, m map[K]V, key K, value V, same func(V, V) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := m[key]
	m[key] = value
	return !same(old, value)
}

func remove[K comparable, V any](a *Activator, m map[K]V, key K) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, was := m[key]
	delete(m, key)
	return was
}

// Without capacity, the next of [api.Function.Fallback] answers. Only the list of the named function counts: no
// request goes in a circle.

const headerFallback = "Rouse-Fallback"

func (c *call) fallsBack(e *api.Error) bool {
	at, _ := api.FindPath("", c.req.in.URL.Path)
	switch {
	case at.Model != api.ModelInJSON, c.atOnce, c.background, c.req.plain, c.req.via != nil, c.reply.answered != 0, c.ctx.Err() != nil, e.Code == api.CodeShutdown:
		return false
	}
	return e.Status == http.StatusServiceUnavailable || e.Code == api.CodeHoldFull
}

// false: no other model may answer.
func (c *call) fallBack(err error) bool {
	var refused *api.Error
	if !errors.As(err, &refused) || !c.fallsBack(refused) {
		return false
	}
	if !c.fell {
		c.fell, c.fallbacks = true, c.f.Spec().Fallback
	}
	for len(c.fallbacks) > 0 {
		name := c.fallbacks[0]
		c.fallbacks = c.fallbacks[1:]
		t, found := c.substitute(string(name))
		if found == nil {
			found = c.renameModel(string(name))
		}
		if found != nil {
			c.a.log.Debug("fallback skipped", "request", c.req.id, "function", c.f.Name, "model", name, "because", found)
			continue
		}
		c.replaceBy(string(name), t, refused.Code)
		return true
	}
	return false
}

func (c *call) substitute(name string) (*target, error) {
	names := c.a.names.Load()
	t, missing := names.fallback(c.f, name)
	if missing != nil {
		return nil, missing
	}
	account, from := c.holder.account, c.f.Spec()
	elsewhere := func(region string) bool { return !slices.Contains(from.Regions, region) }
	for _, share := range t.shares { // any of them may get it
		f, to := share.f, share.f.Spec()
		switch {
		case f == c.f || isPlain(f), to.PassCredentials && !from.PassCredentials,
			from.Regions != nil && (to.Regions == nil || slices.ContainsFunc(to.Regions, elsewhere)):
			return nil, fmt.Errorf("%s can't answer in place of %s", f.Name, c.f.Name)
		case account != nil && !account.Rights().Allows(namesFor(f, name, names.adapter(name, f))...):
			return nil, notAllowed(account, name)
		}
	}
	if lacks := t.lacks(t.first(), c.req.in.URL.Path); lacks != nil {
		return nil, lacks
	}
	return t, nil
}

// In f's namespace first.
func (d *directory) fallback(f *queue.Function, name string) (*target, *api.Error) {
	if t := d.byModel[string(api.NewFunctionName(f.Name.Namespace(), name))]; t != nil {
		return t, nil
	}
	return d.find(name, false)
}

func (d *directory) wrongFallbacks(f *queue.Function) (list []string) {
	for _, name := range f.Spec().Fallback {
		t, missing := d.fallback(f, string(name))
		switch short := f.Name.Short(); {
		case missing != nil:
			list = append(list, fmt.Sprintf("the fallback %s of %s is no model here: declare it, or correct the name", name, short))
		case slices.ContainsFunc(t.shares, func(s backend) bool { return s.f == f }):
			list = append(list, fmt.Sprintf("the fallback %s of %s is that function itself: name another model", name, short))
		case d.leadsBack(t, f, map[*target]bool{}):
			list = append(list, fmt.Sprintf("the fallback %s of %s leads back to it: of a circle only the list of the model that a request names counts", name, short))
		}
	}
	return list
}

func (d *directory) leadsBack(t *target, f *queue.Function, seen map[*target]bool) bool {
	seen[t] = true
	return slices.ContainsFunc(t.shares, func(s backend) bool {
		return s.f == f || slices.ContainsFunc(s.f.Spec().Fallback, func(name api.ModelName) bool {
			next, missing := d.fallback(s.f, string(name))
			return missing == nil && !seen[next] && d.leadsBack(next, f, seen)
		})
	})
}

// The copy is charged to the request.
func (c *call) renameModel(name string) error {
	if err := c.req.body.Take(c.ctx, int64(c.req.body.Len()+len(name))); err != nil {
		return err
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return err
	}
	body := c.req.body.Object().Clone()
	body.Set("model", quoted)
	c.sent.body = relay.Bytes(body.Bytes())
	return nil
}

func (c *call) replaceBy(name string, t *target, reason string) {
	c.f.Metrics.FellBack(reason)
	if c.insteadOf == "" {
		c.insteadOf = c.req.Model + ": " + reason
	}
	c.sent.cutOff()
	c.f.Leave(&c.want)
	c.a.log.Debug("request falls back to another model", "request", c.req.id, "from", c.f.Name, "to", name, "because", reason)
	c.f, c.group, c.want.Group = t.pick(), nil, ""
	if len(t.variants) > 0 {
		c.group, c.want.Group = t, t.service
	}
	c.req.Model, c.req.adapter = name, c.a.names.Load().adapter(name, c.f)
	c.want.Adapter = c.req.adapter
	c.want.Renew()
	c.refusals, c.sent.attempts, c.sent.given, c.preferred = 0, 0, 0, false
	c.reply.comment.fallBack(fmt.Sprintf("%s; reason=%q", name, reason))
}

// A model with variants is several functions under one name: on other GPUs, with other weights or another runtime.
// A request waits at the best one ([queue.Best]) and moves when another has a free slot.

// Each is as old as the oldest of its services.
func (d *directory) variants(services []service, created map[api.FunctionName]time.Time) []wish {
	type model struct {
		namespace string
		name      api.ModelName
	}
	groups := map[model]*target{}
	since := map[model]time.Time{}
	var order []model
	for _, s := range services {
		for _, name := range s.each(func(m backend) []api.ModelName { return []api.ModelName{m.variantOf} }) {
			if name == "" {
				continue
			}
			key := model{s.name.Namespace(), name}
			g := groups[key]
			if g == nil {
				g = &target{service: api.NewFunctionName(key.namespace, string(name))}
				groups[key] = g
				order = append(order, key)
			}
			if at := created[s.name]; !at.IsZero() && (since[key].IsZero() || at.Before(since[key])) {
				since[key] = at
			}
			t := s.target(func(m backend) bool { return m.variantOf == name })
			g.variants = append(g.variants, t)
			g.shares = append(g.shares, t.shares...)
			g.total += t.total
		}
	}
	slices.SortFunc(order, func(a, b model) int {
		if own := a.namespace == api.DefaultNamespace; own != (b.namespace == api.DefaultNamespace) {
			if own {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	wishes := make([]wish, len(order))
	for i, key := range order {
		g := groups[key]
		members := &queue.Group{Name: g.service}
		for _, sh := range g.shares {
			members.Variants = append(members.Variants, sh.f)
			d.groups[sh.f] = members
		}
		if d.byModel[string(g.service)] == nil {
			d.byModel[string(g.service)] = g
		}
		wishes[i] = wish{name: names.Declaration{Service: g.service, Created: since[key], Name: key.name, Kind: names.Variant}, t: g}
	}
	return wishes
}

func (t *target) choose() *queue.Function {
	fs := make([]*queue.Function, len(t.variants))
	for i, v := range t.variants {
		fs[i] = v.pick()
	}
	return queue.Best(fs)
}

// false: there is none, or the client's time is up.
func (c *call) moveToVariant(err error) bool {
	var refused *api.Error
	if c.group == nil || c.ctx.Err() != nil || !errors.As(err, &refused) || refused.Code == queue.CodeHoldTimeout {
		return false
	}
	sent := refused == queue.ErrElsewhere
	if c.refusals >= len(c.group.variants) && !sent {
		return false
	}
	group := c.group
	if g := c.a.names.Load().byModel[c.req.Model]; g != nil && len(g.variants) > 0 && !c.fell {
		group = g // its variants may have changed; those of a fallback were checked
	}
	next := group.choose()
	if next == c.f && !sent {
		return false
	}
	c.a.log.Debug("request moves to another variant", "request", c.req.id, "from", c.f.Name, "to", next.Name, "because", refused.Message)
	c.sent.cutOff()
	c.f.Leave(&c.want)
	c.group, c.f, c.want.Group, c.sent.attempts = group, next, group.service, 0
	if !sent {
		c.refusals++
	}
	return true
}
