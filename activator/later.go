package activator

import (
	"context"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// Caller is who has sent a request that is served later, when its client is not connected any more. It holds no key: what
// the caller may is looked up anew when the request is served, so a key that was revoked meanwhile counts no more. It can be stored as JSON.
type Caller struct {
	// Client is as in [peer.Peer].
	Client string `json:"client"`
	// Trusted says that it is a peer that the operator trusts, and Local that it is on this machine.
	Trusted bool `json:"trusted,omitempty"`
	Local   bool `json:"local,omitempty"`
	// Account is the account of its key; empty: it has shown none, because none is needed.
	Account string `json:"account,omitempty"`
}

// Anonymous is the owner of what clients leave that need no key.
const Anonymous = "anonymous"

// Owner is whose things a caller's are: those of its tenant, or where no keys are needed everybody's. It is never empty.
func (c Caller) Owner() string {
	if peer.Tenant(c.Client) != "" {
		return c.Client
	}
	return Anonymous
}

// Caller finds out who sends a request that is to be served later. The error is an *[api.Error]: a 401 where the request has no
// valid key. Where keys are on, a client that needs none because everybody is let in has nothing of its own: it gets a 401 too.
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

// Terms say how a request is served later.
type Terms struct {
	// Background says that it takes only what is left over: it has a priority below 0, is refused where no instance is awake with a free slot,
	// wakes nothing, and is no demand: the autoscaler learns nothing of it. Otherwise it is served as if its client had just sent it.
	Background bool
}

// background is the highest priority of requests in the background.
const background = -4

// later is what the context of such a request has.
type later struct {
	caller Caller
	terms  Terms
}

type laterKey struct{}

// laterOf is nil for a request that a client has just sent.
func laterOf(ctx context.Context) *later {
	l, _ := ctx.Value(laterKey{}).(*later)
	return l
}

// ServeLater serves a request at the front door for a caller, by all the rules that hold for it when it asks itself: keys, limits,
// order, charges, access log. Its path is one of those whose body names the model.
func (a *Activator) ServeLater(w http.ResponseWriter, r *http.Request, c Caller, t Terms) {
	if p, _ := api.NamedPath(r.URL.Path); p.Model == api.ModelNowhere {
		a.notFound(w, r)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), laterKey{}, &later{caller: c, terms: t}))
	a.serve(w, r, nil, t.Background)
}

// whose is who such a request comes from, as [Activator.clientOf] says it of others.
func (a *Activator) whose(c Caller) (peer.Peer, *keys.Account, error) {
	p := peer.Peer{Client: c.Client, Trusted: c.Trusted, Local: c.Local}
	if a.deps.Keys == nil || c.Trusted {
		return p, nil, nil
	}
	account, err := a.deps.Keys.Account(c.Account)
	if err != nil {
		return p, nil, err // an *api.Error
	}
	return clientFor(account, p), account, nil
}

// ReadBody reads the body of a request that is to be served later, as those of others are read. The error is an *[api.Error].
// The caller releases it.
func (a *Activator) ReadBody(w http.ResponseWriter, r *http.Request, c Caller) (*inbound.Body, error) {
	body, err := a.door.Read(w, r, c.Client)
	if err != nil {
		return nil, api.AsError(err)
	}
	return body, nil
}

// OwnHost says whether a host is that of a function, where all paths are the function's.
func (a *Activator) OwnHost(host string) bool {
	_, own := a.names.Load().ownHost(host)
	return own
}

// Room is what instances of a model can take now.
type Room struct {
	// Slots is how many requests the instances that take requests serve at once, or where there are none one of them does. Free is how many
	// of these are free and nobody waits for.
	Slots, Free int
	// Wake is how long it takes until requests are taken; 0: they are, or it is not known.
	Wake time.Duration
}

// Room says what instances of a model can take now. The error says why the caller may not use it, or that there is none.
func (a *Activator) Room(c Caller, model string) (Room, *api.Error) {
	_, account, bad := a.whose(c)
	if bad != nil {
		return Room{}, api.AsError(bad)
	}
	names := a.names.Load()
	t, missing := names.find(model, account == nil || account.Unrestricted())
	if missing != nil {
		if account != nil && missing.Code == api.CodeModelNotFound && !account.Allows(model) {
			return Room{}, notAllowed(account, model)
		}
		return Room{}, missing
	}
	if account != nil && !account.Allows(t.first().namesFor(model, names.adapter(model, t.first()))...) {
		return Room{}, notAllowed(account, model)
	}
	var all Room
	for _, s := range t.shares {
		r := s.f.room(time.Now())
		all.Slots, all.Free = all.Slots+r.Slots, all.Free+r.Free
		if r.Wake > 0 && (all.Wake == 0 || r.Wake < all.Wake) {
			all.Wake = r.Wake
		}
	}
	return all, nil
}

// room is what f can take.
func (f *function) room(now time.Time) (r Room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Wake = f.expected(now)
	if f.set.Awake(now) {
		r.Slots = f.set.Capacity(now)
	}
	if r.Slots == 0 {
		r.Slots = max(1, f.spec.Concurrency)
	}
	if f.queue.Len() == 0 && f.failed == nil {
		r.Free = f.set.Free(now)
	}
	return r
}
