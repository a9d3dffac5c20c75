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

// Account is the rights and the use of a key, or of a tenant of an issuer.
type Account struct {
	// Without a Tenant each address is a client of its own.
	Name, Tenant string

	id      string
	others  Others
	revoked context.Context
	revoke  context.CancelFunc
	asked   atomic.Int64 // last look-up, in Unix nanoseconds

	mu       sync.Mutex // guards the fields below
	rights   apikey.Rights
	expires  time.Time
	requests allowance
	tokens   allowance
	budget   control.Budget
	pending  float64 // estimates that are not settled
	running  int
	theirs   int // at other activators
}

func newAccount(id, name, tenant string, s *Store, r apikey.Rights, expires, now time.Time) *Account {
	a := &Account{Name: name, Tenant: tenant, id: id, others: s.others}
	b, _ := s.budgets.Load(id)
	a.budget, _ = b.(control.Budget)
	a.revoked, a.revoke = context.WithCancel(context.Background())
	a.set(r, expires, now)
	return a
}

// The use stays.
func (a *Account) set(r apikey.Rights, expires, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rights, a.expires = r, expires
	a.requests.resize(float64(r.RequestsPerMinute), now)
	a.tokens.resize(float64(r.TokensPerMinute), now)
}

// ID returns the account's id, equal in all activators, with only a hash of the key.
func (a *Account) ID() string { return a.id }

// Revoked returns a context that ends with the key.
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

// idle reports whether the account is like a new one.
func (a *Account) idle(now time.Time) bool {
	if now.Sub(time.Unix(0, a.asked.Load())) < forget {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	begin(&a.budget, now, a.pending)
	return a.running == 0 && a.theirs == 0 && a.requests.full(now) && a.tokens.full(now) && a.budget[1].Tokens+a.budget[1].GPUSeconds == 0
}

// Charge is a request's charge to its account.
type Charge struct {
	account *Account
	tokens  float64
	settled bool
	told    bool // the others know of it
	left    http.Header
}

// Describe sets OpenAI's headers with the rest of the limits, x-ratelimit-*. A nil charge sets none.
func (c *Charge) Describe(h http.Header) {
	if c != nil {
		maps.Copy(h, c.left)
	}
}

// Admit charges about so much use. The error is a 429 with the time to retry; the charge then only describes the
// limits. If a limit is nearly used up, Admit asks the other activators, which blocks shortly, at most until ctx
// ends.
//
// A request beyond the limit of a minute is admitted if the bucket is full, and paid for afterwards.
func (a *Account) Admit(ctx context.Context, now time.Time, u control.Use) (*Charge, *api.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u.Spent = u.Tokens
	c := &Charge{account: a, tokens: u.Tokens, told: a.limited()}
	err := a.short(u, now)
	if err == nil {
		err = a.charge(ctx, u, now, c.told)
	}
	if c.left = a.left(now); err == nil {
		a.pending += u.Tokens
	}
	return c, err
}

// The caller holds mu, which is unlocked while others are asked. told: they learn of the use.
func (a *Account) charge(ctx context.Context, u control.Use, now time.Time, told bool) *api.Error {
	back := control.Use{}.Minus(u)
	sure, apart := a.sure(u, now)
	if !sure && !apart { // they learn of this use before they report theirs
		a.use(u, told)
		a.mu.Unlock()
		all := a.others.Ask(ctx)
		a.mu.Lock()
		a.take(back)
		err := a.short(u, now)
		if err == nil && all {
			a.take(u)
			return nil
		}
		if a.others.Used(a.id, back); err != nil {
			return err
		}
		sure, _ = a.sure(u, now)
	}
	if !sure {
		return api.Errorf(http.StatusTooManyRequests, CodeRateLimit, "the key %s has used this front door's part of its limits, and another front door can't be asked for the rest", a.Name).
			WithRetryAfter(max(time.Second, a.requests.part.until(u.Requests), a.tokens.part.until(u.Tokens)))
	}
	a.use(u, told)
	return nil
}

// short returns an error for an exceeded limit, as far as known here. The caller holds mu.
func (a *Account) short(u control.Use, now time.Time) *api.Error {
	if n := a.running + a.theirs; a.rights.Concurrent > 0 && n+int(u.Running) > a.rights.Concurrent {
		return api.Errorf(http.StatusTooManyRequests, CodeRateLimit, "%d requests of the key %s wait or run already, which is its limit", n, a.Name).WithRetryAfter(time.Second)
	}
	wait, limit, per := a.requests.wait(u.Requests, now), "requests", a.rights.RequestsPerMinute
	if w := a.tokens.wait(u.Tokens, now); w > wait {
		wait, limit, per = w, "tokens", a.rights.TokensPerMinute
	}
	if wait > 0 {
		return api.Errorf(http.StatusTooManyRequests, CodeRateLimit, "the key %s has used its %d %s a minute: try again in %s", a.Name, per, limit, wait.Round(time.Millisecond)).WithRetryAfter(wait)
	}
	if !a.budgeted() {
		return nil
	}
	begin(&a.budget, now, a.pending)
	return a.overBudget(now)
}

// sure reports whether this activator's part suffices; apart is as in [Others]. The caller holds mu.
func (a *Account) sure(u control.Use, now time.Time) (sure, apart bool) {
	if !a.limited() {
		return true, false
	}
	n, unknown, known, period := a.others.Among(a.id)
	requests := a.requests.share(unknown.Requests, n, period, now)
	tokens := a.tokens.share(unknown.Tokens, n, period, now)
	places := float64(a.rights.Concurrent)
	return n == 1 || (known || period > 0) &&
		(a.requests.limit == 0 || min(u.Requests, a.requests.limit) <= requests) &&
		(a.tokens.limit == 0 || min(u.Tokens, a.tokens.limit) <= tokens) &&
		(places == 0 || u.Running <= partOf(places-float64(a.running+a.theirs), unknown.Running, n)), period > 0
}

// partOf returns one part of what was left when all knew the same: left, and what was used here since.
func partOf(left, unknown float64, n int) float64 {
	return (left+unknown)/float64(n) - unknown
}

// told: the others learn of it. The caller holds mu.
func (a *Account) use(u control.Use, told bool) {
	a.take(u)
	if told {
		a.others.Used(a.id, u)
	}
}

// The others do not learn of it. The caller holds mu.
func (a *Account) take(u control.Use) {
	a.requests.take(u.Requests)
	a.tokens.take(u.Tokens)
	a.running += int(u.Running)
	a.spend(u)
}

// limited reports whether others have to know. The caller holds mu.
func (a *Account) limited() bool {
	return a.requests.limit > 0 || a.tokens.limit > 0 || a.rights.Concurrent > 0 || a.budgeted()
}

// The caller holds mu.
func (a *Account) left(now time.Time) http.Header {
	if a.requests.limit == 0 && a.tokens.limit == 0 {
		return nil
	}
	h := make(http.Header, 6)
	a.requests.describe(h, "Requests", now)
	a.tokens.describe(h, "Tokens", now)
	return h
}

// Settle replaces the estimate, once.
func (c *Charge) Settle(used api.Tokens) {
	a := c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.settled {
		return
	}
	c.settled = true
	more := float64(used) - c.tokens
	a.use(control.Use{Tokens: more, Spent: more}, c.told)
	a.pending -= c.tokens
}

// End ends the request, which without Settle has used no tokens.
func (c *Charge) End() {
	c.Settle(0)
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.account.use(control.Use{Running: -1}, c.told)
}

type allowance struct {
	bucket
	own   bucket // here: others can't make the limit larger
	part  bucket // while some are apart; no limit: none are
	apart uint64 // number of that time
	// Debt that late use would have left: what is given back pays it first.
	forgiven float64
}

func (l *allowance) resize(limit float64, now time.Time) {
	l.bucket.resize(limit, now)
	l.own.resize(limit, now)
}

func (l *allowance) take(n float64) {
	l.own.take(n)
	l.part.take(n)
	l.takeAll(n)
}

// Here or elsewhere.
func (l *allowance) takeAll(n float64) {
	if l.level >= l.limit {
		l.forgiven = 0
	}
	back := min(max(0, -n), l.forgiven)
	l.forgiven -= back
	l.bucket.take(n + back)
}

// late: the others have kept within their parts, so there is no debt.
func (l *allowance) learn(n float64, late bool, now time.Time) {
	l.fill(now)
	l.own.fill(now)
	debt := min(0, l.level)
	l.takeAll(n)
	switch {
	case late: // it has used its own part
		l.forgiven += max(0, debt-l.level)
		l.level = max(debt, l.level)
	case l.part.limit > 0:
		l.part.fill(now)
		l.part.take(n * l.part.limit / l.limit)
	}
	l.level = min(l.level, l.own.level)
}

// share returns the rest of this activator's part.
func (l *allowance) share(unknown float64, n int, apart uint64, now time.Time) float64 {
	limit := l.limit / float64(n)
	if apart == 0 || l.apart != apart || l.part.limit != limit {
		l.part, l.apart = bucket{limit: limit, level: partOf(l.level, unknown, n), at: now}, apart
	}
	l.own.fill(now)
	l.part.fill(now)
	rest := l.part.level
	if apart == 0 {
		l.part = bucket{}
	}
	return rest
}

// bucket holds the allowance of a minute, and fills evenly. It can be in debt. Zero: no limit.
type bucket struct {
	limit, level float64
	at           time.Time // of level
}

func (b *bucket) resize(limit float64, now time.Time) {
	b.fill(now)
	used := b.limit - b.level
	b.limit, b.at = limit, now
	b.level = limit - used
}

func (b *bucket) fill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 { // a clock may go back
		b.level = min(b.limit, b.level+b.limit*passed.Minutes())
		b.at = now
	}
}

func (b *bucket) wait(n float64, now time.Time) time.Duration {
	if b.limit == 0 {
		return 0
	}
	b.fill(now)
	return b.until(min(n, b.limit))
}

func (b *bucket) until(level float64) time.Duration {
	if b.level >= level {
		return 0
	}
	return max(time.Millisecond, time.Duration((level-b.level)/b.limit*float64(time.Minute)))
}

func (b *bucket) full(now time.Time) bool {
	b.fill(now)
	return b.level >= b.limit
}

func (b *bucket) take(n float64) {
	if b.limit > 0 {
		b.level = min(b.limit, b.level-n)
	}
}

// describe sets OpenAI's headers for a limit.
func (b *bucket) describe(h http.Header, what string, now time.Time) {
	if b.limit == 0 {
		return
	}
	b.fill(now)
	h["X-Ratelimit-Limit-"+what] = []string{strconv.FormatInt(int64(b.limit), 10)}
	h["X-Ratelimit-Remaining-"+what] = []string{strconv.FormatInt(int64(max(0, b.level)), 10)}
	h["X-Ratelimit-Reset-"+what] = []string{b.until(b.limit).Round(time.Millisecond).String()}
}
