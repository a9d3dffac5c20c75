package signin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/rouse-dev/rouse/internal/localhttp"
)

const (
	mostAnswer    = 1 << 20
	retryProvider = 5 * time.Second
	// skew is the tolerated difference to the provider's clock.
	skew = time.Minute
	// atOnce bounds concurrent redemptions: anyone can send back any code.
	atOnce = 16
)

// provider is the configured OpenID provider. Its metadata is read at the first sign-in, and cached.
type provider struct {
	cfg      Config
	callback string
	ctx      context.Context // for the library's fetching of keys
	room     chan struct{}   // semaphore of atOnce

	mu     sync.Mutex // guards all below; held while the provider is asked
	known  *endpoints
	failed time.Time // zero: it could be read
	why    error
}

type endpoints struct {
	oauth     oauth2.Config
	verifier  *oidc.IDTokenVerifier
	people    *oidc.Provider // nil: it has no user info endpoint
	saysWhose bool           // its answers name their issuer
	basic     bool           // the client's secret is sent in a header
}

// errProvider: the provider can't be reached, or violates the protocol.
var errProvider = errors.New("the provider does not answer as it should")

var errRefused = errors.New("the provider does not vouch for this sign-in")

func newProvider(ctx context.Context, cfg Config, callback string) provider {
	client := *cfg.Client
	client.Transport = localhttp.Limit{From: client.Transport, Bytes: mostAnswer}
	// A redirect would send the secret along.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return provider{cfg: cfg, callback: callback, ctx: oidc.ClientContext(ctx, &client), room: make(chan struct{}, atOnce)}
}

func (p *provider) ask() (*endpoints, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known != nil {
		return p.known, nil
	}
	if !p.failed.IsZero() && time.Since(p.failed) < retryProvider {
		return nil, p.why
	}
	known, err := p.discover()
	if err != nil {
		p.failed, p.why = time.Now(), fmt.Errorf("%w: %w", errProvider, err)
		return nil, p.why
	}
	p.known = known
	return known, nil
}

func (p *provider) discover() (*endpoints, error) {
	found, err := oidc.NewProvider(p.ctx, p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		SaysWhose bool     `json:"authorization_response_iss_parameter_supported"`
		Methods   []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, fmt.Errorf("read what the provider says of itself: %w", err)
	}
	at := found.Endpoint()
	for name, u := range map[string]string{"authorization_endpoint": at.AuthURL, "token_endpoint": at.TokenURL} {
		if err := checkURL(name, strings.SplitN(u, "?", 2)[0], true); err != nil {
			return nil, fmt.Errorf("what the provider says of itself: %w", err)
		}
	}
	people := found
	if checkURL("userinfo_endpoint", found.UserInfoEndpoint(), true) != nil {
		people = nil
	}
	return &endpoints{
		people: people,
		oauth:  oauth2.Config{ClientID: p.cfg.ClientID, Endpoint: at, RedirectURL: p.callback, Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...)},
		// The library allows no skew for a token's expiry.
		verifier:  found.VerifierContext(p.ctx, &oidc.Config{ClientID: p.cfg.ClientID, Now: func() time.Time { return time.Now().Add(-skew) }}),
		saysWhose: more.SaysWhose,
		basic:     len(more.Methods) == 0 || slices.Contains(more.Methods, "client_secret_basic"),
	}, nil
}

// redeem exchanges a code for a person. Errors are errProvider and errRefused.
func (p *provider) redeem(ctx context.Context, code string, t ticket) (who, error) {
	select {
	case p.room <- struct{}{}:
		defer func() { <-p.room }()
	default:
		return who{}, fmt.Errorf("%w: %d people are signing in", errProvider, atOnce)
	}
	known, err := p.ask()
	if err != nil {
		return who{}, err
	}
	ask, cancel := context.WithCancel(p.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	client, err := p.client(known)
	if err != nil {
		return who{}, err
	}
	token, err := client.Exchange(ask, code, oauth2.VerifierOption(t.verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == "invalid_grant":
		return who{}, fmt.Errorf("%w: it does not take the code, which is good once", errRefused)
	case err != nil:
		return who{}, fmt.Errorf("%w: redeem a code: %w", errProvider, err)
	}
	raw, is := token.Extra("id_token").(string)
	if !is {
		return who{}, fmt.Errorf("%w: there is no ID token in its answer", errProvider)
	}
	verified, err := known.verifier.Verify(ask, raw)
	if err != nil {
		if strings.Contains(err.Error(), "fetching keys") { // the library has no error value for it
			return who{}, fmt.Errorf("%w: %w", errProvider, err)
		}
		return who{}, fmt.Errorf("%w: %w", errRefused, err)
	}
	if !same(verified.Nonce, t.nonce) {
		return who{}, fmt.Errorf("%w: its token is of another sign-in", errRefused)
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return who{}, fmt.Errorf("%w: its claims: %w", errRefused, err)
	}
	person, err := p.cfg.read(verified.Subject, claims)
	if err != nil || p.cfg.allows(person) || known.people == nil {
		return person, err
	}
	return p.more(ask, known.people, token, verified.Subject, claims)
}

// more adds the provider's user info: addresses and groups need not be in tokens.
func (p *provider) more(ctx context.Context, people *oidc.Provider, token *oauth2.Token, subject string, claims map[string]any) (who, error) {
	info, err := people.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return who{}, fmt.Errorf("%w: ask it about a person: %w", errProvider, err)
	}
	var said map[string]any
	if err := info.Claims(&said); err != nil {
		return who{}, fmt.Errorf("%w: what it says of a person: %w", errProvider, err)
	}
	if info.Subject != subject {
		return who{}, fmt.Errorf("%w: it tells of another person", errRefused)
	}
	if _, has := claims["email"]; has { // an address and its verification belong together
		delete(said, "email_verified")
	}
	maps.Copy(said, claims)
	return p.cfg.read(subject, said)
}

// The way of sending the secret is not tried out: a code is valid for one try.
func (p *provider) client(known *endpoints) (client oauth2.Config, err error) {
	client = known.oauth
	if p.cfg.Secret != nil {
		if client.ClientSecret, err = p.cfg.Secret(); err != nil {
			return client, fmt.Errorf("%w: read the client's secret: %w", errProvider, err)
		}
	}
	client.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	if client.ClientSecret != "" && known.basic {
		client.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	return client, nil
}
