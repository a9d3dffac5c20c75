package activator

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// A model with variants is several functions under one name, each a way to run it: on other GPUs, with other weights
// or another runtime. The client names the model, and each request goes to the best variant now:
//
//  1. one that is awake and has a free slot
//  2. one that is awake
//  3. one that is being woken
//  4. one that sleeps and may be woken without asking
//  5. one with waiting requests, or that starts
//  6. any: the autoscaler decides which one to start
//  7. one that is refused, if all are

// Among equals the cheapest is chosen, then the first by name. A request that waits at one variant moves to another as
// soon as that one has a free slot, or, if its own variant is refused, to any that is not.

// The ranks of variants, in that order.
const (
	hasSlot = iota
	isAwake
	isWoken
	isGranted
	isExpected
	isAny
	isRefused
)

// errElsewhere is handed to a waiting request that another variant serves.
var errElsewhere = api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "another variant of the model has a free slot")

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
			for _, sh := range t.shares {
				d.groups[sh.f] = g
			}
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
		if d.byModel[string(g.service)] == nil {
			d.byModel[string(g.service)] = g
		}
		wishes[i] = wish{name: names.Declaration{Service: g.service, Created: since[key], Name: key.name, Kind: names.Variant}, t: g}
	}
	return wishes
}

// choose returns the variant that can serve a request best now.
func (t *target) choose() *function {
	var best *function
	var place int
	var price float64
	now := time.Now()
	for _, v := range t.variants {
		f := v.pick()
		p, c := f.place(now)
		if best == nil || cmp.Or(cmp.Compare(p, place), cmp.Compare(c, price), cmp.Compare(f.name, best.name)) < 0 {
			best, place, price = f, p, c
		}
	}
	return best
}

// place returns f's rank among a model's variants, and its price.
func (f *function) place(now time.Time) (place int, price float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	price = f.spec.Price()
	switch {
	case f.refusal(now) != nil:
		return isRefused, price
	case f.queue.Len() == 0 && f.set.Free(now) > 0:
		return hasSlot, price
	case f.set.Awake(now):
		return isAwake, price
	case f.waking.instance != "":
		return isWoken, price
	}
	sleepers, _ := f.set.Asleep(now, route.Want{})
	for _, i := range sleepers {
		if f.a.wakes.Granted(i.ID) {
			return isGranted, price
		}
	}
	if best, found := f.set.Best(); f.queue.Len() > 0 || found && best.State == api.Starting {
		return isExpected, price
	}
	return isAny, price
}

// move moves c to another variant of the model that its client named, after its own variant refused it with err. It
// returns false if there is none, or the client's time is up.
func (c *call) move(err error) bool {
	var refused *api.Error
	if c.group == nil || c.ctx.Err() != nil || !errors.As(err, &refused) || refused.Code == api.CodeHoldTimeout {
		return false
	}
	sent := refused == errElsewhere
	if c.refusals >= len(c.group.variants) && !sent {
		return false
	}
	group := c.group
	if g := c.a.names.Load().byModel[c.req.Model]; g != nil && len(g.variants) > 0 {
		group = g // the variants may have changed
	}
	next := group.choose()
	if next == c.f && !sent {
		return false
	}
	c.a.log.Debug("request moves to another variant", "request", c.req.id, "from", c.f.name, "to", next.name, "because", refused.Message)
	c.sent.cutOff()
	c.f.forget(c)
	c.group, c.f, c.trace = group, next, nil
	c.wait.entry, c.wait.ticket, c.sent.attempts = nil, 0, 0
	if !sent {
		c.refusals++
	}
	return true
}

// gather moves requests that wait at other variants of f's model to f, as many as it has free slots.
func (f *function) gather() {
	g := f.a.names.Load().groups[f]
	if g == nil {
		return
	}
	f.mu.Lock()
	free := 0
	if f.declared && f.queue.Len() == 0 {
		free = f.set.Free(time.Now())
	}
	f.mu.Unlock()
	for _, s := range g.shares {
		if free <= 0 {
			return
		}
		if s.f != f {
			free -= s.f.sendAway(g.service, free)
		}
	}
}

// sendAway makes up to most requests that wait for f, but named the group, look for another variant, in order of
// their wait, the longest first.
func (f *function) sendAway(group api.FunctionName, most int) (sent int) {
	for _, e := range f.waitingFor(group) {
		if sent == most {
			break
		}
		if f.takeOut(e) && e.Offer(&slot{refused: errElsewhere}) {
			sent++
		}
	}
	if sent > 0 {
		f.meter.Changed()
	}
	return sent
}

// waitingFor returns the requests that wait for f, but named the group, the longest wait first.
func (f *function) waitingFor(group api.FunctionName) []*hold.Entry[*slot] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queue.Len() == 0 {
		return nil
	}
	var waiting []*hold.Entry[*slot] // not the calls: their fields are no longer ours once they have left
	for c := range f.calls {
		if c.group != nil && c.group.service == group && c.wait.entry != nil {
			waiting = append(waiting, c.wait.entry)
		}
	}
	slices.SortFunc(waiting, func(a, b *hold.Entry[*slot]) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Ticket, b.Ticket))
	})
	return waiting
}

// takeOut removes e from the queue; false: it was not in it.
func (f *function) takeOut(e *hold.Entry[*slot]) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.queue.Leave(e) {
		return false
	}
	f.metrics.Held(f.queue.Len(), f.queue.Bytes())
	return true
}
