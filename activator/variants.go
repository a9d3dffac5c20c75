package activator

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// A model with variants is several functions under one name, each a way to run it: on other GPUs, with other weights
// or another runtime. The client names the model, and each request goes to the variant that can serve it best now
// ([queue.Best]). A request that waits at one variant moves to another as soon as that one has a free slot, or, if its
// own variant is refused, to any that is not.

// variants returns the models with variants: functions of one namespace that declare it. Such a model is as old as
// the oldest of their services.
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

// choose returns the variant that can serve a request best now.
func (t *target) choose() *queue.Function {
	fs := make([]*queue.Function, len(t.variants))
	for i, v := range t.variants {
		fs[i] = v.pick()
	}
	return queue.Best(fs)
}

// moveToVariant moves c to another variant of the model that its client named, after its own variant refused it with
// err. It returns false if there is none, or the client's time is up.
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
		group = g // the variants may have changed; those of a fallback were checked
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
