package activator

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// holder is who pays for a request: the account of the key that its client has shown, and what the request is
// charged. It is empty where no key is needed.
type holder struct {
	account *keys.Account // nil: there is none
	charge  *keys.Charge  // nil: nothing is charged yet
	watch   func() bool   // ends the watch for the key's end; nil: there is none
}

// keyed says whether the client has shown a key, which is nobody else's to see.
func (h *holder) keyed() bool { return h.account != nil && h.account.Tenant != "" }

// clientOf finds out who sends a request: by its key where keys are on, else by its address. A peer that the
// operator trusts needs no key, nor a front door that passes a request on: they have asked their own clients for theirs.
func (a *Activator) clientOf(r *http.Request) (peer.Peer, *keys.Account, error) {
	if l := laterOf(r.Context()); l != nil {
		return a.whose(l.caller)
	}
	p := a.deps.Peers.Peer(r)
	if a.deps.Keys == nil || p.Trusted || p.Vouched {
		return p, nil, nil
	}
	account, err := a.deps.Keys.Authenticate(r)
	if err != nil {
		return p, nil, err // an *api.Error
	}
	return clientFor(account, p), account, nil
}

// clientFor is the client that an account makes of one: its tenant, where it has one.
func clientFor(account *keys.Account, p peer.Peer) peer.Peer {
	if account.Tenant != "" {
		p = peer.Peer{Client: peer.Named(account.Tenant)}
	}
	return p
}

// authenticate finds out who the client is, before its body is read.
func (c *call) authenticate() (err error) {
	c.req.peer, c.holder.account, err = c.a.clientOf(c.req.in)
	if err != nil {
		inbound.Unread(c.reply.w, c.req.in)
		if api.AsError(err).Status == http.StatusUnauthorized {
			c.reply.w.Header().Set("WWW-Authenticate", "Bearer")
		}
		return err
	}
	if account := c.holder.account; account != nil {
		c.holder.watch = context.AfterFunc(account.Revoked(), func() { c.cancel(keys.ErrRevoked) })
	}
	return nil
}

// permit says why the client may not have what it asks for, and bounds the priority of what is served in the background.
func (c *call) permit(found *api.Error) *api.Error {
	err := c.allow(found)
	if c.background {
		c.req.Priority = min(c.req.Priority, background)
	}
	return err
}

// allow says why the client may not have what it asks for. The function is found, or the error is why it was not: a
// client that may not use all models does not learn which of the others there are.
func (c *call) allow(found *api.Error) *api.Error {
	account := c.holder.account
	if account == nil {
		switch {
		case !c.req.peer.Trusted:
			c.req.Priority = 0
		case found == nil:
			return c.objective()
		}
		return found
	}
	switch { // nothing of a function is said to who may not use it, not even what its runtime lacks
	case c.f != nil && !account.Allows(c.f.namesFor(c.req.Model, c.req.adapter)...),
		c.f == nil && found != nil && found.Code == api.CodeModelNotFound && !account.Allows(c.req.Model):
		return notAllowed(account, c.req.Model)
	case found != nil:
		return found
	}
	if account.Tenant == "" {
		c.req.Priority = 0
	} else {
		if err := c.objective(); err != nil {
			return err
		}
		if err := account.Claim(c.req.Priority, c.req.Tier); err != nil {
			return err
		}
		c.req.peer.Trusted = true // with its priority
	}
	charge, err := account.Admit(c.req.in.Context(), c.req.begun, c.req.Tokens)
	c.reply.limits = charge
	charge.Describe(c.reply.w.Header())
	if err != nil {
		return err
	}
	c.holder.charge = charge
	return nil
}

func notAllowed(account *keys.Account, model string) *api.Error {
	e := api.Errorf(http.StatusForbidden, api.CodeNotAllowed, "the key %s may not use the model %s", account.Name, quoteName(model))
	e.Param = "model"
	return e
}

// namesFor are the names by which a client may have been allowed f: those of its model, or where the request names an
// adapter that one alone.
func (f *function) namesFor(asked string, adapter api.ModelName) []string {
	if adapter != "" {
		return []string{asked, string(adapter)}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	service := f.spec.ServiceName()
	names := []string{string(service), service.Name()}
	for _, n := range f.spec.Names() {
		names = append(names, string(n))
	}
	if f.spec.VariantOf != "" {
		names = append(names, string(f.spec.VariantOf))
	}
	return names
}

// models are those that the requests inside of a call of /invocations may name: those of its function that the key may use. nil: all.
func (c *call) models() (list []string) {
	account := c.holder.account
	switch {
	case c.atOnce && account == nil: // another front door says it
		return c.req.in.Header[control.HeaderModels]
	case account == nil, account.Unrestricted(), !strings.HasSuffix(c.req.in.URL.Path, pathInvocations):
		return nil
	}
	if names := c.f.namesFor("", ""); account.Allows(names...) {
		list = names
	}
	for of, own := range c.a.names.Load().adapters {
		if own && of.f == c.f && account.Allows(c.f.namesFor(of.name, api.ModelName(of.name))...) {
			list = append(list, of.name)
		}
	}
	return list
}

// settle ends what the request is charged.
func (c *call) settle() {
	h := &c.holder
	if h.watch != nil {
		h.watch()
	}
	if h.account == nil {
		return
	}
	used := c.reply.used(c.req.Input)
	if h.charge != nil {
		h.charge.Settle(used.input + used.output)
		h.charge.End()
	}
	c.a.metrics.Tenant(h.tenant(), c.reply.status, used.input, used.output)
}

// tenant is whose key the client has shown: the tenant's, or of a key without one its own name. Empty: it has shown none.
func (h *holder) tenant() string {
	if h.account == nil {
		return ""
	}
	return cmp.Or(h.account.Tenant, h.account.Name)
}

// spend counts what a request has used of an instance.
func (c *call) spend(id api.InstanceID, used tokens) {
	if used.input+used.output == 0 { // the instance has refused it
		return
	}
	u := api.Use{Instance: id, Tenant: c.holder.tenant(), Requests: 1, Input: used.input, Cached: used.cached, Output: used.output, Cost: hold.Cost(used.input, used.output)}
	if c.holder.account != nil {
		u.Key = c.holder.account.Name
	}
	c.a.spent.Add(time.Now(), c.f.name, u)
}

// mayList says whether the client may see the names of all functions.
func (c *call) mayList() bool {
	if account := c.holder.account; account != nil {
		return account.Unrestricted()
	}
	return c.a.mayList(c.req.in)
}

// mayUse says which names a client sees in lists: nil where it sees all of them. The error is that of a client who may see none.
func (a *Activator) mayUse(r *http.Request) (func(names ...string) bool, error) {
	if a.deps.Keys == nil {
		if a.mayList(r) {
			return nil, nil // nil is all
		}
		return nil, unlisted(r)
	}
	if a.deps.Lists != nil && a.deps.Lists(r) {
		return nil, nil // nil is all
	}
	_, account, err := a.clientOf(r)
	switch {
	case err != nil:
		return nil, err
	case account == nil || account.Unrestricted():
		return nil, nil // nil is all
	}
	return account.Allows, nil
}

func unlisted(r *http.Request) *api.Error {
	return api.Errorf(http.StatusUnauthorized, "",
		"%s is for callers on this machine, those that --trusted-peers names, and bearers of the token of --admin-token-file", r.URL.Path)
}
