package signin_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/rouse-dev/rouse/cmd/internal/page/signin"
)

// The page's address and the provider's.
const (
	pageURL = "https://rouse.example"
	issuer  = "https://id.example"
)

// key is the provider's, made once: it takes half a second.
var key = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

// fakeProvider is an OpenID provider in the place of the network. It signs anybody in, and answers as a test says.
type fakeProvider struct {
	t      *testing.T
	down   bool
	asked  int                                // for what it is
	meta   map[string]any                     // changes what it says of itself
	claims map[string]any                     // changes what tokens say; nil values are left out
	token  func(signed string) any            // changes its answer to a code
	forge  bool                               // signs with another key
	codes  map[string]url.Values              // by code, what the browser brought
	more   func(q url.Values)                 // changes what it sends back with the browser
	info   map[string]any                     // what it says of people where it is asked; nil: it can't be
	client string                             // who redeemed the last code, and how
	signed func(claims map[string]any) string // makes the ID token
}

func newProvider(t *testing.T) *fakeProvider {
	p := &fakeProvider{t: t, codes: map[string]url.Values{}}
	p.signed = p.sign
	return p
}

func (p *fakeProvider) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.down {
		return nil, io.ErrUnexpectedEOF
	}
	w := httptest.NewRecorder()
	p.serve(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

func (p *fakeProvider) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		p.asked++
		meta := map[string]any{"issuer": issuer, "jwks_uri": issuer + "/keys", "authorization_endpoint": issuer + "/auth?tenant=a", "token_endpoint": issuer + "/token", "id_token_signing_alg_values_supported": []string{"RS256"}}
		if p.info != nil {
			meta["userinfo_endpoint"] = issuer + "/me"
		}
		maps.Copy(meta, p.meta)
		_ = json.NewEncoder(w).Encode(meta)
	case "/keys":
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key().PublicKey, KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	case "/me":
		if r.Header.Get("Authorization") != "Bearer x" {
			p.t.Errorf("it is asked about a person with %q", r.Header.Get("Authorization"))
		}
		_ = json.NewEncoder(w).Encode(p.info)
	case "/token":
		p.redeem(w, r)
	default:
		p.t.Errorf("the provider is asked %s", r.URL)
	}
}

// redeem checks a code as a provider does, once.
func (p *fakeProvider) redeem(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	p.client = "form " + r.Form.Get("client_id") + ":" + r.Form.Get("client_secret")
	if name, secret, basic := r.BasicAuth(); basic {
		p.client = "basic " + name + ":" + secret
	}
	began, found := p.codes[r.Form.Get("code")]
	sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
	if !found || began.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || r.Form.Get("redirect_uri") != began.Get("redirect_uri") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
		return
	}
	delete(p.codes, r.Form.Get("code"))
	now := time.Now()
	claims := map[string]any{"iss": issuer, "aud": "rouse", "sub": "ann", "name": "Ann", "email": "ann@corp.example", "email_verified": true, "groups": []string{"staff"},
		"nonce": began.Get("nonce"), "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	for k, v := range p.claims {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	signed := p.signed(claims)
	var answer any = map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": signed}
	if p.token != nil {
		answer = p.token(signed)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *fakeProvider) sign(claims map[string]any) string {
	private := key()
	if p.forge {
		private, _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: private, KeyID: "1"}}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// authorize signs a person in at the provider, and returns the URL that the browser is sent back to.
func (p *fakeProvider) authorize(to string) string {
	u, err := url.Parse(to)
	if err != nil || !strings.HasPrefix(to, issuer+"/auth?") {
		p.t.Fatalf("the browser is sent to %q (%v)", to, err)
	}
	q := u.Query()
	for name, want := range map[string]string{"response_type": "code", "client_id": "rouse", "code_challenge_method": "S256", "redirect_uri": pageURL + signin.PathCallback, "scope": "openid email profile", "tenant": "a"} {
		if q.Get(name) != want {
			p.t.Errorf("the provider is told %s %q, want %q", name, q.Get(name), want)
		}
	}
	if len(q.Get("state")) < 40 || len(q.Get("nonce")) < 40 || len(q.Get("code_challenge")) != 43 || q.Get("state") == q.Get("nonce") {
		p.t.Errorf("state, nonce and challenge are %v", q)
	}
	code := rand.Text()
	p.codes[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if p.more != nil {
		p.more(back)
	}
	return q.Get("redirect_uri") + "?" + back.Encode()
}

// browser has cookies, and asks the page.
type browser struct {
	t       *testing.T
	page    http.Handler
	cookies map[string]*http.Cookie
}

// ask sends a request as a page at origin does; empty: no page.
func (b *browser) ask(method, at, origin string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, at, http.NoBody)
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	b.page.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c
		}
		if !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" || !strings.HasPrefix(c.Name, "__Host-") {
			b.t.Errorf("a cookie is %v", c)
		}
	}
	return w
}

// signIn goes through a sign-in and returns the page's last answer.
func (b *browser) signIn(p *fakeProvider) *httptest.ResponseRecorder {
	b.t.Helper()
	w := b.ask(http.MethodGet, pageURL+"/rouse/signin", "")
	if w.Code != http.StatusSeeOther {
		return w
	}
	return b.ask(http.MethodGet, p.authorize(w.Header().Get("Location")), "")
}

// fixture is a page behind a sign-in. What it guards answers "inside".
type fixture struct {
	*fakeProvider

	log  bytes.Buffer
	page http.Handler
}

func start(t *testing.T, change func(*signin.Config)) *fixture {
	t.Helper()
	f := &fixture{fakeProvider: newProvider(t)}
	cfg := signin.Config{URL: pageURL, Issuer: issuer, ClientID: "rouse", Groups: []string{"operators"}, Emails: []string{"Ann@Corp.example"},
		Client: &http.Client{Transport: f.fakeProvider}, Log: slog.New(slog.NewTextHandler(&f.log, nil))}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s, err := signin.New(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.page = s.Handler(s.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/rouse/v1/watch" { // followed until it ends
			_, _ = io.WriteString(w, "following")
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "inside")
	})))
	return f
}

func (f *fixture) browser() *browser {
	return &browser{t: f.t, page: f.page, cookies: map[string]*http.Cookie{}}
}
