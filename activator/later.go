package activator

import (
	"context"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// Caller identifies the sender of a request that is served later, after its client has disconnected. It holds no key:
// permissions are looked up when the request is served, so a key that was revoked meanwhile no longer counts. It can
// be stored as JSON.
type Caller struct {
	// Client is as in [peer.Peer].
	Client string `json:"client"`
	// Trusted: a peer that the operator trusts. Local: it is on this machine.
	Trusted bool `json:"trusted,omitempty"`
	Local   bool `json:"local,omitempty"`
	// Account is the account of its key; empty: no key was needed.
	Account string `json:"account,omitempty"`
}

// Anonymous owns what is left by clients that need no key.
const Anonymous = "anonymous"

// Owner returns the owner of a caller's data: its tenant, or Anonymous, which all clients without a key share. It is
// never empty.
func (c Caller) Owner() string {
	if peer.Tenant(c.Client) != "" {
		return c.Client
	}
	return Anonymous
}

// Caller identifies the sender of a request that is to be served later. The error is an *[api.Error]: a 401 without a
// valid key. If keys are on, a client that is let in without one owns nothing, and gets a 401 too.
func (a *Activator) Caller(r *http.Request) (Caller, error) {
	p, account, err := a.clientOf(r)
	if err != nil {
		return Caller{}, err
	}
	c := Caller{Client: p.Client, Trusted: p.Trusted, Local: p.Local}
	if account == nil {
		return c, nil
	}
	if account.Tenant == "" {
		return Caller{}, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "a key is needed to leave something here: what clients without one leave would be everybody's")
	}
	c.Account = account.ID()
	return c, nil
}

// Terms are the conditions under which a request is served later.
type Terms struct {
	// Background limits it to spare capacity: its priority is below 0, it is refused if no awake instance has a free
	// slot, wakes nothing, and is not reported as demand. Otherwise it is served as if its client had just sent it.
	Background bool
	// Charged means that [Activator.Charge] has counted the request.
	Charged bool
}

// background is the highest priority of background requests.
const background = -4

// later is the context value of a request that is served later.
type later struct {
	caller Caller
	terms  Terms
}

type laterKey struct{}

// laterOf returns nil for a request straight from a client.
func laterOf(ctx context.Context) *later {
	l, _ := ctx.Value(laterKey{}).(*later)
	return l
}

// ServeLater serves a request at the front door for a caller, by the rules of a direct request: keys, limits, order,
// charges, access log. Its path must be one whose body names the model.
func (a *Activator) ServeLater(w http.ResponseWriter, r *http.Request, c Caller, t Terms) {
	if p, _ := api.FindPath("", r.URL.Path); p.Model == "" {
		a.notFound(w, r)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), laterKey{}, &later{caller: c, terms: t}))
	a.serve(w, r, nil, t.Background)
}

// whose identifies the client of such a request, like [Activator.clientOf].
func (a *Activator) whose(c Caller) (peer.Peer, *keys.Account, error) {
	p := peer.Peer{Client: c.Client, Trusted: c.Trusted, Local: c.Local}
	if a.deps.Keys == nil || c.Trusted {
		return p, nil, nil
	}
	account, err := a.deps.Keys.Account(c.Account)
	return clientFor(account, p), account, err // an *api.Error
}

// Charge counts a request that leaves something here against the limits of the caller's key. The error is an
// *[api.Error], a 429 with the time to retry if a limit is used up.
func (a *Activator) Charge(ctx context.Context, c Caller) error {
	_, account, err := a.whose(c)
	if err != nil || account == nil {
		return err
	}
	if _, bad := account.Admit(ctx, time.Now(), control.Use{Requests: 1}); bad != nil {
		return bad
	}
	return nil
}

// ReadBody reads the body of a request that is to be served later, within the usual limits. The error is an
// *[api.Error]. The caller releases the body.
func (a *Activator) ReadBody(w http.ResponseWriter, r *http.Request, c Caller) (*inbound.Body, error) {
	body, err := a.door.Read(w, r, c.Client)
	if err != nil {
		return nil, api.AsError(err)
	}
	return body, nil
}

// OwnHost reports whether a host is a function's own, where every path is the function's.
func (a *Activator) OwnHost(host string) bool {
	_, own := a.names.Load().ownHost(host)
	return own
}

// Room is the free capacity of a model's instances.
type Room = queue.Room

// Room returns the free capacity of a model's instances. The error: the caller may not use the model, or there is
// none.
func (a *Activator) Room(c Caller, model string) (Room, *api.Error) {
	_, account, bad := a.whose(c)
	if bad != nil {
		return Room{}, api.AsError(bad)
	}
	names := a.names.Load()
	t, missing := names.find(model, account == nil || account.Rights().Unrestricted())
	if missing != nil {
		if account != nil && missing.Code == api.CodeModelNotFound && !account.Rights().Allows(model) {
			return Room{}, notAllowed(account, model)
		}
		return Room{}, missing
	}
	if account != nil && !account.Rights().Allows(namesFor(t.first(), model, names.adapter(model, t.first()))...) {
		return Room{}, notAllowed(account, model)
	}
	var all Room
	for _, s := range t.shares {
		r := s.f.Room()
		all.Slots, all.Free = all.Slots+r.Slots, all.Free+r.Free
		if r.Wake > 0 && (all.Wake == 0 || r.Wake < all.Wake) {
			all.Wake = r.Wake
		}
	}
	return all, nil
}
