package activator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

// A function may name models that answer in its place ([api.Function.Fallback]). A request goes to the next of them if
// no instance of its function could take it, and its client has no byte of an answer. The list of the function that the
// client named is the only one: so a request is never sent in a circle.

// headerFallback names the model that answers in place of the one that the client named, and the reason.
const headerFallback = "Rouse-Fallback"

// fallsBack reports whether another model may answer a request that was refused with an error.
func (c *call) fallsBack(e *api.Error) bool {
	at, _ := api.FindPath("", c.req.in.URL.Path)
	switch {
	case at.Model != api.ModelInJSON, c.atOnce, c.background, c.req.plain, c.req.via != nil, c.reply.answered != 0, c.ctx.Err() != nil, e.Code == api.CodeShutdown:
		return false
	}
	return e.Status == http.StatusServiceUnavailable || e.Code == api.CodeHoldFull
}

// fallBack moves c to the next model that may answer in place of its function, which refused it with err. It returns
// false if there is none.
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

// substitute finds a model for c, in the namespace of its function first. The error says why c can't go there.
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

// fallback finds a model that f names as its fallback, in f's namespace first.
func (d *directory) fallback(f *queue.Function, name string) (*target, *api.Error) {
	if t := d.byModel[string(api.NewFunctionName(f.Name.Namespace(), name))]; t != nil {
		return t, nil
	}
	return d.find(name, false)
}

// wrongFallbacks says of each fallback of f that helps nothing why, in a line.
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

// leadsBack reports whether f is among the fallbacks of t, and of theirs.
func (d *directory) leadsBack(t *target, f *queue.Function, seen map[*target]bool) bool {
	seen[t] = true
	return slices.ContainsFunc(t.shares, func(s backend) bool {
		return s.f == f || slices.ContainsFunc(s.f.Spec().Fallback, func(name api.ModelName) bool {
			next, missing := d.fallback(s.f, string(name))
			return missing == nil && !seen[next] && d.leadsBack(next, f, seen)
		})
	})
}

// renameModel makes the body that is sent name another model. Its copy is charged to the request.
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

// replaceBy lets c wait for t, as a new request does.
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
