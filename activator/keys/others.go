package keys

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Others are the activators that admit requests of the same accounts. Only Ask blocks.
type Others interface {
	// Among returns the number of activators and the most of an account's use here that one does not know. known is
	// false until the use before this one's start is known. If apart is not 0, some can't be asked: this one may
	// use its part, until the number changes.
	Among(account string) (n int, unknown control.Use, known bool, apart uint64)
	Used(account string, u control.Use)
	// Ask blocks until all know all use, for a short time, at most until ctx ends. It reports whether what is left
	// can be used.
	Ask(ctx context.Context) bool
}

type nobody struct{}

func (nobody) Among(string) (int, control.Use, bool, uint64) { return 1, control.Use{}, true, 0 }
func (nobody) Used(string, control.Use)                      {}
func (nobody) Ask(context.Context) bool                      { return true }

// An account's id is one of these and a lookup key.
const (
	ofKey    = "key"    // and the hash
	ofIssuer = "issuer" // and the URL and the claim
)

// Among is called before the first [Store.Load].
func (s *Store) Among(o Others) *Store {
	s.others = o
	return s
}

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

// nil: not declared. The error is from [issuer.of].
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

// Account finds an account by its [Account.ID]. The error is an [api.Error]: a 401 or from [issuer.of].
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

// Learn records use at another activator. Late use may have been refilled: it leaves no debt. A nil Store has no
// accounts.
func (s *Store) Learn(account string, u control.Use, late bool) {
	if s == nil {
		return
	}
	a, _ := s.named(account)
	if a == nil { // without room nothing is charged
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.requests.learn(u.Requests, late, now)
	a.tokens.learn(u.Tokens, late, now)
	a.theirs = max(0, a.theirs+int(u.Running))
	a.spend(u)
}

// All returns the use of accounts with limits, without running requests.
func (s *Store) All() map[string]control.Use {
	now, all := time.Now(), map[string]control.Use{}
	if s == nil {
		return all
	}
	s.each(func(a *Account) {
		a.mu.Lock()
		a.requests.fill(now)
		a.tokens.fill(now)
		if u := (control.Use{Requests: a.requests.limit - a.requests.level, Tokens: a.tokens.limit - a.tokens.level}); u != (control.Use{}) {
			all[a.id] = u
		}
		a.mu.Unlock()
	})
	return all
}
