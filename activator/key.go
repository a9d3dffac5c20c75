package activator

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// holder is empty if no key is needed.
type holder struct {
	account *keys.Account
	charge  *keys.Charge
	watch   func() bool // ends the watch for the key's end
}

// keyed reports whether the client presented a key, which must not be passed on.
func (h *holder) keyed() bool { return h.account != nil && h.account.Tenant != "" }

// clientOf needs no key of trusted peers and front doors: they authenticated their own clients.
func (a *Activator) clientOf(r *http.Request) (peer.Peer, *keys.Account, error) {
	if l := laterOf(r.Context()); l != nil {
		return a.whose(l.caller)
	}
	p := a.deps.Peers.Peer(r)
	if a.deps.Keys == nil || p.Trusted || p.Vouched {
		return p, nil, nil
	}
	account, err := a.deps.Keys.Authenticate(r)
	return clientFor(account, p), account, err // an *api.Error
}

func clientFor(account *keys.Account, p peer.Peer) peer.Peer {
	if account != nil && account.Tenant != "" {
		p = peer.Peer{Client: peer.Named(account.Tenant)}
	}
	return p
}

// Before the body is read.
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

// permit also bounds the priority of background requests.
func (c *call) permit(found *api.Error) *api.Error {
	err := c.allow(found)
	if c.background {
		c.req.Priority = min(c.req.Priority, background)
	}
	return err
}

// found is the error of the lookup: a restricted client must not learn which other models exist.
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
	switch { // it learns nothing of a function that it may not use
	case c.f != nil && !account.Rights().Allows(namesFor(c.f, c.req.Model, c.req.adapter)...),
		c.f == nil && found != nil && found.Code == api.CodeModelNotFound && !account.Rights().Allows(c.req.Model):
		name := c.req.Model
		if name == "" && c.f != nil {
			name = c.f.Name.Short()
		}
		return notAllowed(account, name)
	case found != nil:
		return found
	}
	if account.Tenant == "" {
		c.req.Priority = 0
	} else {
		if err := c.objective(); err != nil {
			return err
		}
		if err := account.Rights().Claim(c.req.Priority, c.req.Tier); err != nil {
			return err
		}
		c.req.peer.Trusted = true // with its priority
	}
	use := control.Use{Requests: 1, Tokens: float64(c.req.Tokens), Running: 1}
	if l := laterOf(c.req.in.Context()); l != nil && l.terms.Charged {
		use.Requests = 0
	}
	charge, err := account.Admit(c.req.in.Context(), c.req.begun, use)
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

// namesFor returns the names under which f, or the named adapter, may be allowed.
func namesFor(f *queue.Function, asked string, adapter api.ModelName) []string {
	if adapter != "" {
		return []string{asked, string(adapter)}
	}
	spec := f.Spec()
	service := spec.ServiceName()
	names := []string{string(service), service.Name()}
	for _, n := range spec.Names() {
		names = append(names, string(n))
	}
	if spec.VariantOf != "" {
		names = append(names, string(spec.VariantOf))
	}
	return names
}

// models returns the models that requests within /invocations may name; nil: all.
func (c *call) models() (list []string) {
	account := c.holder.account
	switch {
	case c.atOnce && account == nil: // the other front door decides
		return c.req.in.Header[control.HeaderModels]
	case account == nil, account.Rights().Unrestricted(), !strings.HasSuffix(c.req.in.URL.Path, pathInvocations):
		return nil
	}
	if names := namesFor(c.f, "", ""); account.Rights().Allows(names...) {
		list = names
	}
	for of, own := range c.a.names.Load().adapters {
		if own && of.f == c.f && account.Rights().Allows(namesFor(c.f, of.name, api.ModelName(of.name))...) {
			list = append(list, of.name)
		}
	}
	return list
}

func (c *call) settle() {
	h := &c.holder
	if h.watch != nil {
		h.watch()
	}
	if h.account == nil {
		return
	}
	used := c.used()
	if h.charge != nil {
		h.charge.Settle(used.input + used.output)
		h.charge.End()
	}
	c.a.metrics.Tenant(h.tenant(), c.reply.status, used.input, used.output)
}

func (h *holder) tenant() string {
	if h.account == nil {
		return ""
	}
	return cmp.Or(h.account.Tenant, h.account.Name)
}

func (c *call) spend(used tokens) {
	if used.input+used.output == 0 {
		return
	}
	c.count(api.Use{Requests: 1, Input: used.input, Cached: used.cached, Output: used.output})
}

// pay records GPU time. The function is locked.
func (c *call) pay(gpuSeconds float64) {
	c.count(api.Use{GPUSeconds: gpuSeconds})
	if account := c.holder.account; account != nil {
		account.Spend(gpuSeconds)
	}
}

func (c *call) count(u api.Use) {
	u.Tenant = c.holder.tenant()
	if c.holder.account != nil {
		u.Key = c.holder.account.Name
	}
	c.a.spent.Add(time.Now(), c.f.Name, u)
}

// mayList reports whether the client may see the names of all functions.
func (c *call) mayList() bool {
	if account := c.holder.account; account != nil {
		return account.Rights().Unrestricted()
	}
	return c.a.mayList(c.req.in)
}

// mayUse returns a filter of names in lists; nil: all. The error is for a client that may see none.
func (a *Activator) mayUse(r *http.Request) (func(names ...string) bool, error) {
	if a.deps.Keys == nil {
		if a.mayList(r) {
			return nil, nil
		}
		return nil, a.unlisted(r)
	}
	if a.deps.Lists != nil && a.deps.Lists(r) {
		return nil, nil
	}
	_, account, err := a.clientOf(r)
	switch {
	case err != nil:
		return nil, err
	case account == nil || account.Rights().Unrestricted():
		return nil, nil
	}
	return account.Rights().Allows, nil
}

func (a *Activator) unlisted(r *http.Request) *api.Error {
	here := "callers on this machine, "
	if a.deps.Keys != nil {
		here = ""
	}
	return api.Errorf(http.StatusUnauthorized, "", "%s is for %scallers that --trusted-peers names, and bearers of the token of --admin-token-file", r.URL.Path, here)
}

// Messages to a client whose request was ended; %s is the limit.
const (
	tookTooLong   = "the answer took longer than the function's limit of %s (timeoutSeconds or rouse.dev/request-timeout)"
	beganTooLate  = "the answer did not begin within the function's limit of %s (responseStartTimeoutSeconds, idleTimeoutSeconds or rouse.dev/first-byte-timeout)"
	pausedTooLong = "the answer paused for longer than the function's limit of %s (idleTimeoutSeconds or rouse.dev/idle-timeout)"
	clientsLimit  = "the answer took longer than the client's " + headerTimeout + " of %s"
)

// Zero: no limit.
type timeout struct {
	timer *time.Timer
	limit time.Duration
}

// 0: none
func (c *call) limit(d time.Duration, message string) (t timeout) {
	if d > 0 {
		t = timeout{time.AfterFunc(d, func() { c.tooLate(d, message) }), d}
	}
	return t
}

func (t timeout) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// whileQueued is for an attempt that may wait for its turn: until then the limits stand still and the client gets
// comments.
func (c *call) whileQueued(limits ...timeout) context.Context {
	began := time.Now()
	return httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
		ms := h.Get(control.HeaderQueue)
		switch {
		case status != http.StatusProcessing || ms == "":
		case ms == "0":
			c.sent.queued.Store(true)
			for _, t := range limits {
				t.stop()
			}
			if c.req.commented() {
				c.reply.comment.begin(c.f, began)
			}
		case c.sent.queued.CompareAndSwap(true, false):
			c.reply.comment.dispatched()
			for _, t := range limits {
				if t.timer != nil {
					t.timer.Reset(t.limit)
				}
			}
		}
		return nil
	}})
}

// tellTurn tells the front door that its request begins to wait (0), or how long it has waited.
func (c *call) tellTurn(ms int64) {
	if c.req.peer.Turn.Client == 0 {
		return
	}
	c.reply.w.Header()[control.HeaderQueue] = []string{strconv.FormatInt(ms, 10)}
	if c.sent.attempts == 0 {
		c.reply.w.WriteHeader(http.StatusProcessing)
	}
}

// A begun answer ends with the error.
func (c *call) tooLate(limit time.Duration, message string) {
	c.cancel(api.Errorf(http.StatusGatewayTimeout, api.CodeRequestTimeout, message, limit))
}

// explain adds the reason of a failed start for a caller who may know it.
func (a *Activator) explain(e *api.Error, f api.FunctionName, r *http.Request) *api.Error {
	if a.deps.LastError == nil || e.Code != api.CodeStartFailed && e.Code != api.CodeUnhealthy {
		return e
	}
	t := *e
	if why := a.deps.LastError(r, f); why != "" {
		t.Message = fmt.Sprintf("%s could not be brought up: %s", f, why)
	}
	return &t
}

// how is [Config.Stored].
func notStored(field, how string) *api.Error {
	return api.BadRequest(field, "%s can't be kept: responses are not stored here: %s, or leave it out", field, cmp.Or(how, "this server has no store"))
}
