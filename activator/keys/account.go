package keys

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

// Account is the rights and the use of one key, or of one tenant of an issuer.
type Account struct {
	// Name is the key's name. Tenant is its tenant; empty: for clients without a key, each address is a client of its
	// own.
	Name, Tenant string

	id      string // equal in all activators
	others  Others
	revoked context.Context // ends with the account; its requests watch it
	revoke  context.CancelFunc
	asked   atomic.Int64 // when the account was last looked up from an issuer's tenant, in Unix nanoseconds

	mu       sync.Mutex // guards the fields below
	rights   apikey.Rights
	expires  time.Time
	requests bucket
	tokens   bucket
	budget   Budget
	running  int // the number of requests that run here
	theirs   int // the number that run at other activators
}

func newAccount(id, name, tenant string, s *Store, r apikey.Rights, expires, now time.Time) *Account {
	a := &Account{Name: name, Tenant: tenant, id: id, others: s.others, budget: s.budgets[id]}
	a.revoked, a.revoke = context.WithCancel(context.Background())
	a.set(r, expires, now)
	return a
}

// set replaces the account's rights. Its use is kept.
func (a *Account) set(r apikey.Rights, expires, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rights, a.expires = r, expires
	a.requests.resize(float64(r.RequestsPerMinute), now)
	a.tokens.resize(float64(r.TokensPerMinute), now)
}

// ID returns the account's id, which is equal in all activators; [Store.Account] finds the account by it. It holds
// only a hash of the key.
func (a *Account) ID() string { return a.id }

// Revoked returns a context that ends when the key is no longer declared.
func (a *Account) Revoked() context.Context { return a.revoked }

// Rights returns what the account may use.
func (a *Account) Rights() apikey.Rights {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rights
}

func (a *Account) expired(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.expires.IsZero() && !now.Before(a.expires)
}

// idle reports whether the account is like a new one: not looked up for a while, nothing runs, here or elsewhere, and
// its limits are unused.
func (a *Account) idle(now time.Time) bool {
	if now.Sub(time.Unix(0, a.asked.Load())) < forget {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.budget.begin(now)
	return a.running == 0 && a.theirs == 0 && a.requests.full(now) && a.tokens.full(now) && a.budget[1].Tokens+a.budget[1].GPUSeconds == 0
}

// Charge is one request's charge to its account's limits.
type Charge struct {
	account *Account
	tokens  float64
	settled bool
	left    http.Header
}

// Describe sets the headers with the rest of the limits, as in OpenAI's API: x-ratelimit-limit-requests and so on. A
// nil charge, and one without limits, sets none.
func (c *Charge) Describe(h http.Header) {
	if c != nil {
		maps.Copy(h, c.left)
	}
}

// Admit charges a request of about so many tokens. The error is a 429 with the time to retry. The charge is never
// nil, as it describes the limits in the answer, but after an error it must not be settled or ended. If a limit is
// nearly used up, Admit first asks the other activators, which blocks for a short time and no longer than ctx.
//
// A request whose estimate exceeds the limit of a minute is admitted if the bucket is full, and paid for afterwards.
func (a *Account) Admit(ctx context.Context, now time.Time, tokens api.Tokens) (*Charge, *api.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &Charge{account: a, tokens: float64(tokens)}
	u := control.Use{Requests: 1, Tokens: c.tokens, Running: 1}
	err := a.short(u, now)
	if err == nil {
		sure := a.sure(u)
		a.use(u)
		if !sure { // the others learn of this use before they report theirs
			a.mu.Unlock()
			a.others.Ask(ctx)
			a.mu.Lock()
			a.use(control.Use{}.Minus(u))
			if err = a.short(u, now); err == nil {
				a.use(u)
			}
		}
	}
	c.left = a.left(now)
	return c, err
}

// short returns an error for the limit that a request would exceed, as far as known here; nil: none. The caller holds
// mu.
func (a *Account) short(u control.Use, now time.Time) *api.Error {
	if n := a.running + a.theirs; a.rights.Concurrent > 0 && n >= a.rights.Concurrent {
		return api.Errorf(http.StatusTooManyRequests, api.CodeRateLimit, "%d requests of the key %s wait or run already, which is its limit", n, a.Name).WithRetryAfter(time.Second)
	}
	wait, limit, per := a.requests.wait(u.Requests, now), "requests", a.rights.RequestsPerMinute
	if w := a.tokens.wait(u.Tokens, now); w > wait {
		wait, limit, per = w, "tokens", a.rights.TokensPerMinute
	}
	if wait > 0 {
		return api.Errorf(http.StatusTooManyRequests, api.CodeRateLimit, "the key %s has used its %d %s a minute: try again in %s", a.Name, per, limit, wait.Round(time.Millisecond)).WithRetryAfter(wait)
	}
	if !a.budgeted() {
		return nil
	}
	return a.budget.short(a.Name, a.rights, now)
}

// sure reports whether a request can be admitted before the others know of it. Each activator may use its part of
// what was left when all of them knew the same. The caller holds mu.
func (a *Account) sure(u control.Use) bool {
	if !a.limited() {
		return true
	}
	n, unknown, known := a.others.Among(a.id)
	if n == 1 {
		return true
	}
	part := func(limit, level, unknown, used float64) bool {
		return limit == 0 || max(0, unknown)+min(used, limit) <= (level+max(0, unknown))/float64(n)
	}
	places := float64(a.rights.Concurrent)
	return known &&
		part(a.requests.limit, a.requests.level, unknown.Requests, u.Requests) &&
		part(a.tokens.limit, a.tokens.level, unknown.Tokens, u.Tokens) &&
		part(places, places-float64(a.running+a.theirs), unknown.Running, u.Running)
}

// use charges a request's use to the limits, or gives it back. The caller holds mu.
func (a *Account) use(u control.Use) {
	a.requests.take(u.Requests)
	a.tokens.take(u.Tokens)
	a.running += int(u.Running)
	if a.budgeted() {
		u.Spent = u.Tokens
		a.budget.add(u.Spent, u.GPUSeconds)
	}
	if a.limited() {
		a.others.Used(a.id, u)
	}
}

// limited reports whether others have to know the account's use. The caller holds mu.
func (a *Account) limited() bool {
	return a.requests.limit > 0 || a.tokens.limit > 0 || a.rights.Concurrent > 0 || a.budgeted()
}

// left returns a header with the rest of the limits. The caller holds mu.
func (a *Account) left(now time.Time) http.Header {
	if a.requests.limit == 0 && a.tokens.limit == 0 {
		return nil
	}
	h := make(http.Header, 6)
	a.requests.describe(h, "Requests", now)
	a.tokens.describe(h, "Tokens", now)
	return h
}

// Settle replaces the estimate of tokens with the actual use. Only the first call counts.
func (c *Charge) Settle(used api.Tokens) {
	a := c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.settled {
		return
	}
	c.settled = true
	a.use(control.Use{Tokens: float64(used) - c.tokens})
}

// End ends the request. A request that was not settled has used no tokens.
func (c *Charge) End() {
	c.Settle(0)
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.account.use(control.Use{Running: -1})
}

// bucket holds the allowance of one minute, and fills evenly. It can be in debt. The zero value has no limit.
type bucket struct {
	limit, level float64
	at           time.Time // the time of level
}

// resize changes the limit and keeps the use.
func (b *bucket) resize(limit float64, now time.Time) {
	b.fill(now)
	used := b.limit - b.level
	b.limit, b.at = limit, now
	b.level = limit - used
}

func (b *bucket) fill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 { // a clock that goes back takes nothing away
		b.level = min(b.limit, b.level+b.limit*passed.Minutes())
		b.at = now
	}
}

// wait returns the time until n can be taken; 0: now.
func (b *bucket) wait(n float64, now time.Time) time.Duration {
	if b.limit == 0 {
		return 0
	}
	b.fill(now)
	return b.until(min(n, b.limit))
}

// until returns the time until the bucket reaches level.
func (b *bucket) until(level float64) time.Duration {
	if b.level >= level {
		return 0
	}
	return max(time.Millisecond, time.Duration((level-b.level)/b.limit*float64(time.Minute)))
}

// full reports whether nothing of the limit is used.
func (b *bucket) full(now time.Time) bool {
	b.fill(now)
	return b.level >= b.limit
}

func (b *bucket) take(n float64) {
	if b.limit > 0 {
		b.level = min(b.limit, b.level-n)
	}
}

// describe sets OpenAI's headers for the limit of what: itself, the rest, and the time until it is full again.
func (b *bucket) describe(h http.Header, what string, now time.Time) {
	if b.limit == 0 {
		return
	}
	b.fill(now)
	h["X-Ratelimit-Limit-"+what] = []string{strconv.FormatInt(int64(b.limit), 10)}
	h["X-Ratelimit-Remaining-"+what] = []string{strconv.FormatInt(int64(max(0, b.level)), 10)}
	h["X-Ratelimit-Reset-"+what] = []string{b.until(b.limit).Round(time.Millisecond).String()}
}
