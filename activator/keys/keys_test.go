package keys

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

// described returns the header that a charge sets.
func described(c *Charge) http.Header {
	h := http.Header{}
	c.Describe(h)
	return h
}

// TestBudgets: what is used in a day and a month of UTC is limited, over a restart too, and with other activators.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2000, 1, 31, 22, 0, 0, 0, time.UTC)))
		file := &apikey.File{Keys: []apikey.Key{{Name: "a", Hash: apikey.Hash("k-a"), Rights: apikey.Rights{TokensPerDay: 100, GPUSecondsPerMonth: 10}}, {Name: "b", Hash: apikey.Hash("k-b")}}}
		id := ofKey + " " + apikey.Hash("k-a")
		var s *Store
		restart := func() {
			saved := map[string]control.Budget{}
			if s != nil {
				raw, err := json.Marshal(s.Budgets())
				if err != nil || json.Unmarshal(raw, &saved) != nil || len(saved) > 1 {
					t.Fatalf("%s: %v", raw, err)
				}
			}
			s = NewStore(nil)
			s.Restore(saved)
			s.Load(file)
		}
		use := func(want string, tokens api.Tokens, gpuSeconds float64) {
			t.Helper()
			a, err := s.Account(id)
			if err != nil {
				t.Fatal(err)
			}
			c, refused := a.Admit(t.Context(), time.Now(), control.Use{Requests: 1, Tokens: 10, Running: 1})
			switch {
			case want == "" && refused != nil, want != "" && (refused == nil || !strings.Contains(refused.Message, want) || refused.Status != http.StatusTooManyRequests):
				t.Fatalf("got %v, want %q", refused, want)
			case refused != nil:
				if at := time.Now().Add(refused.RetryAfter).UTC(); !strings.Contains(want, at.Format(time.RFC3339)) {
					t.Errorf("it says to come back at %s, and that %s", at, want)
				}
				return
			}
			a.Spend(gpuSeconds)
			c.Settle(tokens)
			c.End()
		}
		restart()
		use("", 60, 4)
		restart()
		use("", 30, 1)
		use("", 20, 0) // the last one may exceed it
		use("100 tokens of this day: the next one begins at 2000-02-01T00:00:00Z", 0, 0)
		restart()
		use("100 tokens of this day: the next one begins at 2000-02-01T00:00:00Z", 0, 0)
		time.Sleep(3 * time.Hour)
		use("", 60, 6)
		s.Learn(id, control.Use{Requests: 1, Tokens: 40, Spent: 40}, false)
		use("100 tokens of this day: the next one begins at 2000-02-02T00:00:00Z", 0, 0)
		time.Sleep(24 * time.Hour)
		s.Learn(id, control.Use{GPUSeconds: 5}, false)
		use("10 GPU-seconds of this month: the next one begins at 2000-03-01T00:00:00Z", 0, 0)
		restart()
		use("10 GPU-seconds of this month: the next one begins at 2000-03-01T00:00:00Z", 0, 0)
		time.Sleep(28 * 24 * time.Hour)
		use("", 1, 1)
	})
}

// budgeted returns a store with a key of 100 tokens a day and a month, and what admits requests of it. Call it in a bubble.
func budgeted(t *testing.T) (s *Store, admit func() *Charge) {
	s = NewStore(nil)
	s.Load(withBudget)
	return s, func() *Charge {
		a, err := s.Account(ofKey + " " + apikey.Hash("k-a"))
		if err != nil {
			t.Fatal(err)
		}
		c, refused := a.Admit(t.Context(), time.Now(), control.Use{Requests: 1, Tokens: 90, Running: 1})
		if refused != nil {
			return nil
		}
		return c
	}
}

var withBudget = &apikey.File{Keys: []apikey.Key{{Name: "a", Hash: apikey.Hash("k-a"), Rights: apikey.Rights{TokensPerDay: 100}}}}

// TestBudgetOfAKeyThatReturns: a key that is removed and added again, with another name too, has no new budget, in a later process either.
func TestBudgetOfAKeyThatReturns(t *testing.T) {
	s, admit := budgeted(t)
	c := admit()
	c.Settle(100)
	c.End()
	s.Load(&apikey.File{})
	left := s.Budgets()
	renamed := withBudget.Keys[0]
	renamed.Name = "b"
	s.Load(&apikey.File{Keys: []apikey.Key{renamed}})
	if admit() != nil {
		t.Error("it is admitted again")
	}
	later, admitLater := budgeted(t)
	later.Load(&apikey.File{})
	later.Restore(left)
	later.Restore(later.Budgets()) // another process, in which it was not used
	later.Load(withBudget)
	if admitLater() != nil {
		t.Error("a later process admits it")
	}
}

// TestBudgetWithinADay: neither a clock that is set back nor an estimate of the day before makes a budget larger.
func TestBudgetWithinADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, admit := budgeted(t)
		early := admit()
		time.Sleep(24 * time.Hour)
		if admit().Settle(5); admit() == nil { // 90 + 5 + 90
			t.Fatal("refused too early")
		}
		early.Settle(20) // 20 + 5 + 90
		if admit() != nil {
			t.Error("an estimate of the day before is given back")
		}
	})
	var b control.Budget
	day := time.Date(2000, 1, 31, 0, 0, 0, 0, time.UTC)
	begin(&b, day, 0)
	b[0].Tokens = 7
	for _, back := range []time.Duration{time.Second, 0, 50 * 24 * time.Hour} {
		if begin(&b, day.Add(-back), 0); b[0].Tokens != 7 {
			t.Errorf("set back by %s: %v", back, b)
		}
	}
	if begin(&b, day, 0); b[0].Tokens != 0 {
		t.Errorf("a new day: %v", b)
	}
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount("key a", "a", "a", NewStore(nil), apikey.Rights{RequestsPerMinute: 2, TokensPerMinute: 600, Concurrent: 2}, time.Time{}, time.Now())
		admit := func(tokens api.Tokens) (*Charge, string) {
			c, err := a.Admit(t.Context(), time.Now(), control.Use{Requests: 1, Running: 1, Tokens: float64(tokens)})
			if err == nil {
				return c, ""
			}
			if err.Status != http.StatusTooManyRequests || err.Code != CodeRateLimit || err.RetryAfter <= 0 {
				t.Errorf("got %+v, want a 429 that says when to come back", err)
			}
			return c, err.RetryAfter.String()
		}
		one, wait := admit(100)
		if wait != "" {
			t.Fatalf("the first request has to wait %s", wait)
		}
		want := http.Header{"X-Ratelimit-Limit-Requests": {"2"}, "X-Ratelimit-Remaining-Requests": {"1"}, "X-Ratelimit-Reset-Requests": {"30s"},
			"X-Ratelimit-Limit-Tokens": {"600"}, "X-Ratelimit-Remaining-Tokens": {"500"}, "X-Ratelimit-Reset-Tokens": {"10s"}}
		if diff := cmp.Diff(want, described(one)); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
		two, wait := admit(1000) // more than a minute's: only with a full bucket
		if wait != "10s" {
			t.Errorf("a large request: got %q, want 10s", wait)
		}
		if described(two).Get("X-Ratelimit-Remaining-Requests") != "1" {
			t.Errorf("a refused request was counted: %v", described(two))
		}
		two, wait = admit(400)
		if wait != "" {
			t.Fatalf("the second request has to wait %s", wait)
		}
		if _, wait = admit(0); wait != "1s" {
			t.Errorf("a third at once: got %q, want 1s", wait)
		}
		one.Settle(700) // it was 600 more than estimated
		one.Settle(0)   // only the first counts
		one.End()
		if _, wait = admit(1); wait != "50.1s" { // 500 in debt
			t.Errorf("a request against a debt: got %q, want 50.1s", wait)
		}
		two.End() // used nothing: 400 come back
		if _, wait = admit(1); wait != "30s" {
			t.Errorf("a request over the requests of a minute: got %q, want 30s", wait)
		}
		time.Sleep(30 * time.Second)
		if _, wait = admit(1); wait != "" {
			t.Errorf("after that: got %q", wait)
		}
		a.set(apikey.Rights{}, time.Time{}, time.Now())
		for range 10 {
			c, wait := admit(1 << 20)
			if wait != "" || len(described(c)) > 0 {
				t.Fatalf("without limits: got %q, %v", wait, described(c))
			}
		}
	})
}

// TestClockJumps sets the time back and forth: nothing is granted twice, and no one is locked out.
func TestClockJumps(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := bucket{}
	b.resize(60, now)
	b.take(60)
	if w := b.wait(1, now.Add(-time.Hour)); w != time.Second {
		t.Errorf("an hour back: wait %s, want 1s", w)
	}
	if one, two := b.wait(1, now.Add(time.Second)), b.wait(2, now.Add(time.Second)); one != 0 || two != time.Second {
		t.Errorf("a second later: wait %s and for two %s, want 0 and 1s", one, two)
	}
	if b.fill(now.Add(1000 * time.Hour)); b.level != 60 {
		t.Errorf("after long: %v, want no more than the limit", b.level)
	}
}

func request(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// status returns the status of an error, 200 for nil.
func status(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return api.AsError(err).Status
}

func TestAuthenticate(t *testing.T) {
	s := NewStore(nil)
	s.Load(&apikey.File{Keys: []apikey.Key{{Name: "a", Hash: strings.ToUpper(apikey.Hash("rouse-a")), Tenant: "t"}, {Name: "old", Hash: apikey.Hash("rouse-old"), Expires: time.Unix(1, 0)}}})
	for _, tc := range []struct {
		name   string
		header []string
		want   string // the account; empty: 401
	}{
		{"bearer", []string{"Authorization", "Bearer rouse-a"}, "a"},
		{"scheme in lower case", []string{"Authorization", "bearer  rouse-a"}, "a"},
		{"Anthropic's", []string{"X-Api-Key", "rouse-a"}, "a"},
		{"Azure's", []string{"Api-Key", "rouse-a"}, "a"},
		{"none", nil, ""},
		{"empty", []string{"Authorization", "Bearer "}, ""},
		{"two of them", []string{"Authorization", "Bearer rouse-a", "X-Api-Key", "rouse-b"}, "a"},
		{"a second one", []string{"Authorization", "Bearer rouse-a", "Authorization", "Bearer rouse-b"}, ""},
		{"a second one of another kind", []string{"Authorization", "Bearer rouse-a", "X-Api-Key", "x", "X-Api-Key", "y"}, ""},
		{"basic", []string{"Authorization", "Basic rouse-a"}, ""},
		{"unknown", []string{"Authorization", "Bearer rouse-b"}, ""},
		{"the hash is no key", []string{"Authorization", "Bearer " + apikey.Hash("rouse-a")}, ""},
		{"expired", []string{"X-Api-Key", "rouse-old"}, ""},
		{"a token of an unknown issuer", []string{"Authorization", "Bearer e30.eyJpc3MiOiJodHRwczovL3guZXhhbXBsZSJ9.x"}, ""},
		{"dots", []string{"Authorization", "Bearer ..."}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := s.Authenticate(request(tc.header...))
			if tc.want == "" {
				if status(err) != http.StatusUnauthorized || api.AsError(err).Code != api.CodeInvalidKey {
					t.Errorf("got %v, want a 401", err)
				}
				return
			}
			if err != nil || a.Name != tc.want || a.Tenant != "t" {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
}

// TestFollow changes the file of a running server.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
		}
		s := NewStore(nil)
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		var log strings.Builder
		go func() { _ = s.Follow(ctx, path, time.Second, slog.New(slog.NewTextHandler(&log, nil))) }()
		get := func(key string) *Account {
			a, _ := s.Authenticate(request("X-Api-Key", key))
			return a
		}
		entry := func(name, key, more string) string {
			return "- {name: " + name + ", hash: " + apikey.Hash(key) + more + "}\n"
		}
		write("keys:\n" + entry("a", "ka", ", requestsPerMinute: 2") + entry("b", "kb", ""))
		a, b := get("ka"), get("kb")
		if a == nil || b == nil {
			t.Fatal("the file was not read")
		}
		if _, err := a.Admit(t.Context(), time.Now(), control.Use{Requests: 1, Running: 1}); err != nil {
			t.Fatal(err)
		}
		write("keys:\n" + entry("a", "ka", ", requestsPerMinute: 1"))
		if get("ka") != a || a.Revoked().Err() != nil {
			t.Error("a key that is still there has lost its account")
		}
		if _, err := a.Admit(t.Context(), time.Now(), control.Use{Requests: 1, Running: 1}); err == nil {
			t.Error("what was used before the change is forgotten")
		}
		if get("kb") != nil || b.Revoked().Err() == nil {
			t.Error("a key that is not there any more is not revoked")
		}
		write("keys: [")
		write("keys: [ ")
		if get("ka") != a {
			t.Error("a bad file has taken the keys away")
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait() // its log is written
		if get("ka") != a {
			t.Error("the loss of the file has taken the keys away")
		}
		write("keys:\n" + entry("c", "kc", ""))
		if get("kc") == nil {
			t.Fatal("the file was not read again")
		}
		if err := os.Chmod(path, 0o602); err != nil {
			t.Fatal(err)
		}
		write("keys:\n" + entry("d", "kd", ""))
		synctest.Wait()
		if get("kd") != nil || get("kc") == nil || !strings.Contains(log.String(), "chmod o-w") || !strings.Contains(fmt.Sprint(NewStore(nil).LoadFile(path)), "chmod o-w") {
			t.Errorf("a file that everybody may write is taken:\n%s", &log)
		}
		if n := strings.Count(log.String(), "stay as they were"); n != 3 {
			t.Errorf("%d complaints, want one for each fault:\n%s", n, &log)
		}
	})
}

// fakeIssuer is an OpenID Connect issuer.
type fakeIssuer struct {
	*httptest.Server

	key  *rsa.PrivateKey
	down atomic.Bool
}

func startIssuer(t *testing.T) *fakeIssuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &fakeIssuer{key: key}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case i.down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL, "token_endpoint": i.URL, "id_token_signing_alg_values_supported": []string{"RS256"}})
		default:
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
		}
	}))
	t.Cleanup(i.Close)
	return i
}

// token signs claims, with a wrong key if forged.
func (i *fakeIssuer) token(t *testing.T, forged bool, claims map[string]any) string {
	t.Helper()
	key := i.key
	if forged {
		key, _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	all := map[string]any{"iss": i.URL, "aud": "rouse", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	return signed(t, key, "1", all)
}

func signed(t *testing.T, key *rsa.PrivateKey, kid string, all map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rotating is an issuer in memory, whose keys change.
type rotating struct {
	fakeIssuer

	kid       string
	asked     int // requests for its keys
	unlimited bool
}

// RoundTrip implements [http.RoundTripper].
func (i *rotating) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.URL.Path == "/keys" {
		i.asked++
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: i.kid, Algorithm: "RS256", Use: "sig"}}})
		if i.unlimited {
			_, _ = io.CopyN(w, zeros{}, 2<<20)
		}
	} else {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": "https://id", "jwks_uri": "https://id/keys", "authorization_endpoint": "https://id", "token_endpoint": "https://id", "id_token_signing_alg_values_supported": []string{"RS256"}})
	}
	return w.Result(), nil
}

type zeros struct{}

// Read implements [io.Reader].
func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestUnknownKeys: tokens with unknown keys, and forged ones with a known key, query the issuer's keys at most once
// in ten seconds, delay no valid token, and hide a new key no longer than that.
func TestUnknownKeys(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		i := &rotating{fakeIssuer: fakeIssuer{Server: &httptest.Server{URL: "https://id"}, key: key}, kid: "1"}
		s := NewStore(&http.Client{Transport: i})
		s.Load(&apikey.File{Issuers: []apikey.Issuer{{URL: "https://id", Audience: "rouse"}}})
		defer s.Load(&apikey.File{})
		use := func(of *rsa.PrivateKey, kid string) int {
			t.Helper()
			_, err := s.Authenticate(request("Authorization", "Bearer "+signed(t, of, kid, map[string]any{"iss": "https://id", "aud": "rouse", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()})))
			return status(err)
		}
		if got := use(key, "1"); got != http.StatusOK || i.asked != 1 {
			t.Fatalf("a good token: %d, asked %d times", got, i.asked)
		}
		for n := range 100 {
			if got := use(other, fmt.Sprint("kid", n)); got != http.StatusUnauthorized {
				t.Errorf("an unknown key: %d", got)
			}
			if got := use(other, "1"); got != http.StatusUnauthorized {
				t.Errorf("a forged token: %d", got)
			}
		}
		if i.asked != 1 {
			t.Errorf("the issuer was asked for its keys %d times at once", i.asked)
		}
		i.key, i.kid = other, "2"
		if got := use(key, "1"); got != http.StatusOK {
			t.Errorf("a good token of the key before: %d", got)
		}
		time.Sleep(retryIssuer)
		if got := use(other, "2"); got != http.StatusOK || i.asked != 2 {
			t.Errorf("a token of the new key: %d, asked %d times", got, i.asked)
		}
		i.unlimited, i.kid = true, "3"
		time.Sleep(retryIssuer)
		if got := use(other, "3"); got != http.StatusServiceUnavailable {
			t.Errorf("keys without end: %d", got)
		}
		if got := use(other, "2"); got != http.StatusOK || i.asked != 3 {
			t.Errorf("a good token of the key that is known: %d, asked %d times", got, i.asked)
		}
	})
}

// TestTenantsWithoutEnd has more tenants than an issuer's accounts may number: each has its own account, or none.
func TestTenantsWithoutEnd(t *testing.T) {
	s := NewStore(nil)
	s.Load(&apikey.File{Issuers: []apikey.Issuer{{URL: "https://id", Rights: apikey.Rights{TokensPerMinute: 1}}}})
	i, now := s.issuers["https://id"], time.Now()
	of := func(tenant string, at time.Duration) *Account {
		t.Helper()
		a, err := i.of(tenant, now.Add(at))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	runs := of("runs", 0)
	charge, refused := runs.Admit(t.Context(), now, control.Use{Requests: 1, Running: 1})
	debtor := of("in debt", 0)
	_, also := debtor.Admit(t.Context(), now, control.Use{Requests: 1, Running: 1, Tokens: 1})
	if refused != nil || also != nil {
		t.Fatal(refused, also)
	}
	for n := range maxTenants - 2 {
		of(fmt.Sprint(n), 0)
	}
	if a, err := i.of("late", now.Add(forget/2)); status(err) != http.StatusServiceUnavailable || api.AsError(err).RetryAfter == 0 {
		t.Errorf("one too many in a minute: got %v, %v, want a 503 that says when to come back", a, err)
	}
	if _, err := s.Account(ofIssuer + " https://id late"); status(err) != http.StatusServiceUnavailable {
		t.Errorf("one too many, by its name: got %v", err)
	}
	debtor.Admit(t.Context(), now.Add(forget), control.Use{Requests: 1, Running: 1, Tokens: 1})
	if late := of("late", forget); late.Tenant != "https://id#late" || late.ID() == runs.ID() {
		t.Errorf("got %+v", late)
	}
	if of("runs", forget) != runs || of("in debt", forget) != debtor {
		t.Error("a tenant with a request, or one that has used its limit, was forgotten")
	}
	if n := len(i.accounts); n != 3 {
		t.Errorf("%d accounts, want those of the three that are not idle", n)
	}
	charge.End()
}

func TestIssuer(t *testing.T) {
	i := startIssuer(t)
	s := NewStore(nil)
	declared := apikey.Issuer{URL: i.URL, Audience: "rouse", TenantClaim: "org", Rights: apikey.Rights{Models: []string{"m"}}}
	s.Load(&apikey.File{Issuers: []apikey.Issuer{declared}})
	try := func(token string) (*Account, error) {
		return s.Authenticate(request("Authorization", "Bearer "+token))
	}
	good := i.token(t, false, map[string]any{"org": "acme"})
	i.down.Store(true)
	if _, err := try(good); status(err) != http.StatusServiceUnavailable || api.AsError(err).RetryAfter == 0 {
		t.Errorf("with the issuer down: got %v, want a 503 that says when to come back", err)
	}
	i.down.Store(false)
	s = NewStore(nil)
	s.Load(&apikey.File{Issuers: []apikey.Issuer{declared}})
	a, err := try(good)
	if err != nil {
		t.Fatal(err)
	}
	if a.Tenant != i.URL+"#acme" || a.Name != a.Tenant || !a.Rights().Allows("m") || a.Rights().Allows("n") {
		t.Errorf("got %+v", a)
	}
	if again, _ := try(i.token(t, false, map[string]any{"org": "acme", "sub": "bob"})); again != a {
		t.Error("two tokens of one tenant have two accounts")
	}
	for name, token := range map[string]string{
		"forged":           i.token(t, true, map[string]any{"org": "acme"}),
		"expired":          i.token(t, false, map[string]any{"org": "acme", "exp": time.Now().Add(-time.Minute).Unix()}),
		"another audience": i.token(t, false, map[string]any{"org": "acme", "aud": "other"}),
		"no tenant":        i.token(t, false, nil),
		"not printed":      i.token(t, false, map[string]any{"org": "\u202eacme"}),
		"a bad tenant":     i.token(t, false, map[string]any{"org": "a\nb"}),
		"no signature":     good[:strings.LastIndex(good, ".")+1],
	} {
		if _, err := try(token); status(err) != http.StatusUnauthorized {
			t.Errorf("%s: got %v, want a 401", name, err)
		}
	}
	declared.Rights = apikey.Rights{Models: []string{"n"}}
	s.Load(&apikey.File{Issuers: []apikey.Issuer{declared}})
	if !a.Rights().Allows("n") || a.Revoked().Err() != nil {
		t.Error("new rights of an issuer do not reach its tenants")
	}
	s.Load(&apikey.File{})
	<-a.Revoked().Done()
	if _, err := try(good); status(err) != http.StatusUnauthorized {
		t.Errorf("after the issuer was taken away: got %v", err)
	}
}

// TestTenantsOfIssuers has the same claim from two issuers, and a key's tenant of that name: three tenants, unless
// the file declares them the same.
func TestTenantsOfIssuers(t *testing.T) {
	one, two := startIssuer(t), startIssuer(t)
	s := NewStore(nil)
	file := func(tenants map[string]string) *apikey.File {
		return &apikey.File{
			Keys:    []apikey.Key{{Name: "acme", Hash: apikey.Hash("rouse-a")}},
			Issuers: []apikey.Issuer{{URL: one.URL, Audience: "rouse", Tenants: tenants}, {URL: two.URL, Audience: "rouse"}},
		}
	}
	get := func(key string) *Account {
		t.Helper()
		a, err := s.Authenticate(request("Authorization", "Bearer "+key))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	claim := func(i *fakeIssuer, sub string) string { return i.token(t, false, map[string]any{"sub": sub}) }
	s.Load(file(nil))
	for key, want := range map[string]string{
		"rouse-a":                           "acme",
		claim(one, "acme"):                  one.URL + "#acme",
		claim(two, "acme"):                  two.URL + "#acme",
		claim(two, one.URL+"#acme"):         two.URL + "#" + one.URL + "#acme",
		claim(one, "#acme"):                 one.URL + "##acme",
		claim(two, "tenant"):                two.URL + "#tenant",
		claim(two, two.URL+"#"+two.URL+"#"): two.URL + "#" + two.URL + "#" + two.URL + "#",
	} {
		if a := get(key); a.Tenant != want {
			t.Errorf("got %s, want %s", a.Tenant, want)
		}
	}
	before := get(claim(one, "acme"))
	s.Load(file(map[string]string{"acme": "acme"}))
	<-before.Revoked().Done() // requests under its former name end
	for sub, want := range map[string]string{"acme": "acme", "umbrella": one.URL + "#umbrella"} {
		if a := get(claim(one, sub)); a.Tenant != want || a.Name != one.URL+"#"+sub {
			t.Errorf("%s: got %s of %s, want %s", sub, a.Name, a.Tenant, want)
		}
	}
	if a := get(claim(two, "acme")); a.Tenant != two.URL+"#acme" {
		t.Errorf("the other issuer's: got %s", a.Tenant)
	}
}
