package keys

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Others are the other activators that let the same accounts in. The methods are safe for many goroutines, and but for Ask
// they do not block.
type Others interface {
	// Among is how many activators there are, this one too, and how much of what an account has used here at least one of them does
	// not know. known is false before this one knows what was used before it began.
	Among(account string) (n int, unknown control.Use, known bool)
	// Used says what an account has used here.
	Used(account string, u control.Use)
	// Ask returns when the others know what was used here, and what was used there is known here; or when it has waited for long enough.
	Ask(ctx context.Context)
}

// nobody are the others of an activator that is alone.
type nobody struct{}

func (nobody) Among(string) (int, control.Use, bool) { return 1, control.Use{}, true }
func (nobody) Used(string, control.Use)              {}
func (nobody) Ask(context.Context)                   {}

// The name of an account in all activators is one of these and what it is found by.
const (
	ofKey    = "key"    // and the hash
	ofIssuer = "issuer" // and the URL and the claim
)

// Among has the store's accounts count together with others. It is called before the first [Store.Load].
func (s *Store) Among(o Others) *Store {
	s.others = o
	return s
}

// each calls do for every account, by the name that it has in all activators.
func (s *Store) each(do func(*Account)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		do(a)
	}
	for _, i := range s.issuers {
		i.mu.Lock()
		for _, a := range i.accounts {
			do(a)
		}
		i.mu.Unlock()
	}
}

// named is the account that has a name in all activators, nil if it is not declared. The error is that of [issuer.of].
func (s *Store) named(id string) (*Account, error) {
	kind, rest, _ := strings.Cut(id, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == ofKey {
		return s.accounts[rest], nil
	}
	url, claim, _ := strings.Cut(rest, " ")
	if i := s.issuers[url]; i != nil && claim != "" {
		return i.of(claim, time.Now())
	}
	return nil, nil
}

// Account finds an account by its [Account.ID]. The error is an [api.Error], a 401: the key is not declared any more, has
// expired, or there was none; or that of [issuer.of].
func (s *Store) Account(id string) (*Account, error) {
	a, err := s.named(id)
	switch {
	case err != nil:
		return nil, err
	case a == nil && id == "":
		return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "a key is needed now, and this request came without one")
	case a == nil:
		return nil, ErrRevoked
	case a.expired(time.Now()):
		return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the key %s has expired", a.Name)
	}
	return a, nil
}

// Learn takes what another activator let an account use.
func (s *Store) Learn(account string, u control.Use) {
	if a, _ := s.named(account); a != nil { // without room for the account there is none to charge
		a.learn(u)
	}
}

// All is what the accounts with limits have used of what their limits allow now; what runs is not in it.
func (s *Store) All() map[string]control.Use {
	now, all := time.Now(), map[string]control.Use{}
	s.each(func(a *Account) {
		if u := a.used(now); u != (control.Use{}) {
			all[a.id] = u
		}
	})
	return all
}

// learn takes what was used elsewhere.
func (a *Account) learn(u control.Use) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.requests.fill(now)
	a.tokens.fill(now)
	a.requests.take(u.Requests)
	a.tokens.take(u.Tokens)
	a.theirs = max(0, a.theirs+int(u.Running))
}

// used is what was used of the limits, as it is now.
func (a *Account) used(now time.Time) (u control.Use) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.limited() {
		return u
	}
	a.requests.fill(now)
	a.tokens.fill(now)
	return control.Use{Requests: a.requests.limit - a.requests.level, Tokens: a.tokens.limit - a.tokens.level}
}
