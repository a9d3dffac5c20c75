package keys

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config/apikey"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// Codes of refusals.
const (
	CodeRateLimit = "rate_limit_exceeded" // OpenAI's code
	CodeNoIssuer  = "issuer_unavailable"  // it must check the token
)

// Of one issuer.
const maxTenants = 10_000

const forget = time.Minute

type issuer struct {
	declared apikey.Issuer
	client   *http.Client
	store    *Store

	ctx    context.Context
	revoke context.CancelFunc

	asking   sync.Mutex // guards the fields below; held during discovery
	verifier *oidc.IDTokenVerifier
	failed   time.Time
	why      error

	mu       sync.Mutex          // guards the fields below, and the declared rights
	accounts map[string]*Account // by claim
}

func newIssuer(d apikey.Issuer, s *Store) *issuer {
	own := *s.client
	own.Transport = &answers{from: localhttp.Limit{From: s.client.Transport, Bytes: mostAnswer}, last: map[string]answer{}}
	i := &issuer{declared: d, client: &own, store: s, accounts: map[string]*Account{}}
	i.ctx, i.revoke = context.WithCancel(oidc.ClientContext(context.Background(), i.client))
	context.AfterFunc(i.ctx, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		for _, a := range i.accounts {
			a.revoke()
		}
	})
	return i
}

// takes applies d's rights if the issuer matches.
func (i *issuer) takes(d apikey.Issuer) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.declared.Audience != d.Audience || i.declared.TenantClaim != d.TenantClaim || !maps.Equal(i.declared.Tenants, d.Tenants) {
		return false
	}
	if !reflect.DeepEqual(i.declared.Rights, d.Rights) {
		for _, a := range i.accounts {
			a.set(d.Rights, time.Time{}, time.Now())
		}
	}
	i.declared.Rights = d.Rights
	return true
}

// false: it is no token
func issuerOf(token string) (url string, is bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", false
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	return claims.Issuer, json.Unmarshal(raw, &claims) == nil && claims.Issuer != ""
}

// Each token with an unknown key would fetch the issuer's keys.
const retryIssuer = 10 * time.Second

func (i *issuer) check() (*oidc.IDTokenVerifier, error) {
	i.asking.Lock()
	defer i.asking.Unlock()
	if i.verifier != nil {
		return i.verifier, nil
	}
	if !i.failed.IsZero() && time.Since(i.failed) < retryIssuer {
		return nil, i.why
	}
	p, err := oidc.NewProvider(i.ctx, i.declared.URL)
	if err != nil {
		i.failed, i.why = time.Now(), err
		return nil, fmt.Errorf("ask the issuer for its keys: %w", err)
	}
	i.verifier = p.Verifier(&oidc.Config{ClientID: i.declared.Audience})
	return i.verifier, nil
}

func (i *issuer) account(ctx context.Context, token string) (*Account, error) {
	v, err := i.check()
	if err != nil {
		return nil, unreachable(i.declared.URL)
	}
	t, err := v.Verify(oidc.ClientContext(ctx, i.client), token)
	if err != nil {
		var expired *oidc.TokenExpiredError
		switch {
		case errors.As(err, &expired):
			return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the token has expired")
		case strings.Contains(err.Error(), "fetching keys"): // the library has no error for it
			return nil, unreachable(i.declared.URL)
		}
		return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the token is not valid here: want one of %s for the audience %s", i.declared.URL, i.declared.Audience)
	}
	claim, err := i.claim(t)
	if err != nil {
		return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the token does not say whose it is: %v", err)
	}
	return i.of(claim, time.Now())
}

func unreachable(url string) *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, CodeNoIssuer, "the issuer %s can't be reached to check the token", url).WithRetryAfter(retryIssuer)
}

func (i *issuer) claim(t *oidc.IDToken) (string, error) {
	name := i.declared.TenantClaim
	if name == "" || name == "sub" {
		return t.Subject, apikey.ValidName(t.Subject)
	}
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return "", fmt.Errorf("its claims: %w", err)
	}
	claim, is := claims[name].(string)
	if !is {
		return "", fmt.Errorf("%w: %s", errNoClaim, name)
	}
	return claim, apikey.ValidName(claim)
}

// The error, a 503, means too many tenants.
func (i *issuer) of(claim string, now time.Time) (*Account, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	a := i.accounts[claim]
	if a == nil {
		if len(i.accounts) >= maxTenants {
			maps.DeleteFunc(i.accounts, func(_ string, a *Account) bool { return a.idle(now) })
		}
		if len(i.accounts) >= maxTenants {
			return nil, api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "%d tenants of %s have used this server in the last minute: it can't keep account of more", maxTenants, i.declared.URL).WithRetryAfter(forget)
		}
		a = newAccount(ofIssuer+" "+i.declared.URL+" "+claim, i.declared.URL+"#"+claim, i.declared.Tenant(claim), i.store, i.declared.Rights, time.Time{}, now)
		i.accounts[claim] = a
	}
	a.asked.Store(now.UnixNano())
	return a, nil
}
