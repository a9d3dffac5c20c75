package signin_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/cmd/internal/page/signin"
)

const inside = pageURL + "/rouse/v1/functions"

// TestSignIn: who is allowed has a session, which the page's own requests use and no other page's, until its owner signs out.
func TestSignIn(t *testing.T) {
	f := start(t, nil)
	b := f.browser()
	if w := b.ask(http.MethodGet, inside, ""); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `"sign_in"`) {
		t.Errorf("without a session: %d %s", w.Code, w.Body)
	}
	w := b.signIn(f.fakeProvider)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
		t.Fatalf("after signing in: %d %v %s\n%s", w.Code, w.Header(), w.Body, &f.log)
	}
	session := b.cookies["__Host-rouse-session"]
	if len(b.cookies) != 1 || session == nil || session.SameSite != http.SameSiteStrictMode || session.MaxAge != int(signin.DefaultSession/time.Second) || len(session.Value) < 26 {
		t.Fatalf("the cookies are %v", b.cookies)
	}
	for _, tc := range []struct {
		method, origin string
		status         int
	}{
		{http.MethodGet, "", 200}, {http.MethodGet, pageURL, 200}, {http.MethodPost, pageURL, 200}, {http.MethodDelete, "HTTPS://rouse.EXAMPLE", 200},
		{http.MethodPost, "", 403}, {http.MethodPost, "null", 403}, {http.MethodPost, "https://evil.example", 403}, {http.MethodGet, "https://evil.example", 403},
		{http.MethodPost, "http://rouse.example", 403}, {http.MethodPost, pageURL + ":8443", 403},
	} {
		if w := b.ask(tc.method, inside, tc.origin); w.Code != tc.status || (w.Code == 200) != (w.Body.String() == "inside") {
			t.Errorf("%s of %q: %d %s, want %d", tc.method, tc.origin, w.Code, w.Body, tc.status)
		}
	}
	for site, want := range map[string]int{"same-origin": 200, "same-site": 403, "cross-site": 403, "none": 200} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, inside, http.NoBody)
		r.AddCookie(session)
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		if f.page.ServeHTTP(w, r); w.Code != want {
			t.Errorf("Sec-Fetch-Site %s: %d, want %d", site, w.Code, want)
		}
	}
	if w := b.ask(http.MethodGet, pageURL+"/rouse/session", pageURL); w.Code != 200 || !strings.Contains(w.Body.String(), `"email":"ann@corp.example"`) || strings.Contains(w.Body.String(), session.Value) {
		t.Errorf("the session is %d %s", w.Code, w.Body)
	}
	if w := b.ask(http.MethodDelete, pageURL+"/rouse/session", ""); w.Code != http.StatusForbidden {
		t.Errorf("another page signs out: %d", w.Code)
	}
	if w := b.ask(http.MethodDelete, pageURL+"/rouse/session", pageURL); w.Code != http.StatusNoContent || len(b.cookies) != 0 {
		t.Errorf("signing out: %d %v", w.Code, b.cookies)
	}
	b.cookies[session.Name] = session // a thief's
	if w := b.ask(http.MethodGet, inside, ""); w.Code != http.StatusUnauthorized {
		t.Errorf("the cookie of a session that was ended: %d", w.Code)
	}
	for _, want := range []string{"has signed in", "asks for a change", "method=DELETE", "has signed out", "subject=ann"} {
		if !strings.Contains(f.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &f.log)
		}
	}
	if strings.Contains(f.log.String(), session.Value) {
		t.Error("the log has the cookie")
	}
}

// TestSessionEnds: at its time, and what is followed with it; a new sign-in ends the browser's old one.
func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(c *signin.Config) { c.Session = time.Hour })
		b := f.browser()
		b.signIn(f.fakeProvider)
		first := b.cookies["__Host-rouse-session"]
		time.Sleep(59 * time.Minute)
		if w := b.ask(http.MethodGet, inside, ""); w.Code != 200 {
			t.Errorf("before its end: %d", w.Code)
		}
		began := time.Now()
		if w := b.ask(http.MethodGet, pageURL+"/rouse/v1/watch", ""); w.Body.String() != "following" || time.Since(began) != time.Minute {
			t.Errorf("what is followed ended after %v: %s", time.Since(began), w.Body)
		}
		if w := b.ask(http.MethodGet, inside, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("after its end: %d", w.Code)
		}
		b.signIn(f.fakeProvider)
		second := b.cookies["__Host-rouse-session"]
		b.signIn(f.fakeProvider)
		third := b.cookies["__Host-rouse-session"]
		if first.Value == second.Value || second.Value == third.Value {
			t.Error("two sessions have one cookie")
		}
		b.cookies[second.Name] = second
		if w := b.ask(http.MethodGet, inside, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("the session before the new one: %d", w.Code)
		}
	})
}

// TestMoreSessionsThanThereMayBe end the oldest, and no others.
func TestMoreSessionsThanThereMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		first, second := f.browser(), f.browser()
		for _, b := range []*browser{first, second} {
			b.signIn(f.fakeProvider)
			time.Sleep(time.Second)
		}
		for range 999 {
			f.browser().signIn(f.fakeProvider)
		}
		synctest.Wait()
		if w := first.ask(http.MethodGet, inside, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("the oldest: %d", w.Code)
		}
		if w := second.ask(http.MethodGet, inside, ""); w.Code != 200 {
			t.Errorf("the next: %d", w.Code)
		}
	})
}

// TestWhoMay: groups, and verified addresses; nobody else.
func TestWhoMay(t *testing.T) {
	for name, tc := range map[string]struct {
		claims map[string]any
		emails []string
		may    bool
	}{
		"a verified address":              {nil, nil, true},
		"verified in a text":              {map[string]any{"email_verified": "true"}, nil, true},
		"an address that is not verified": {map[string]any{"email_verified": false}, nil, false},
		"an address of which nobody says": {map[string]any{"email_verified": nil}, nil, false},
		"another address":                 {map[string]any{"email": "bob@corp.example"}, nil, false},
		"an address of the host":          {map[string]any{"email": "bob@CORP.example"}, []string{"@corp.example"}, true},
		"an address of a host below":      {map[string]any{"email": "bob@a.corp.example"}, []string{"@corp.example"}, false},
		"two hosts":                       {map[string]any{"email": "bob@evil.example@corp.example"}, []string{"@corp.example"}, false},
		"no name":                         {map[string]any{"email": "@corp.example"}, []string{"@corp.example"}, false},
		"an address that goes on":         {map[string]any{"email": strings.Repeat("m", 243) + "@corp.example.evil.example"}, []string{"@corp.example"}, false},
		"a group":                         {map[string]any{"email": nil, "groups": []string{"staff", "operators"}}, nil, true},
		"a group that is a text":          {map[string]any{"email": nil, "groups": "operators"}, nil, true},
		"another group":                   {map[string]any{"email": nil, "groups": []string{"Operators", "operators2"}}, nil, false},
		"groups of another kind":          {map[string]any{"email": nil, "groups": map[string]any{"operators": true}}, nil, false},
		"neither":                         {map[string]any{"email": nil, "groups": nil}, nil, false},
	} {
		f := start(t, func(c *signin.Config) {
			if tc.emails != nil {
				c.Emails = tc.emails
			}
		})
		f.claims = tc.claims
		b := f.browser()
		w := b.signIn(f.fakeProvider)
		if may := w.Code == http.StatusSeeOther && len(b.cookies) == 1; may != tc.may || !may && (w.Code != http.StatusForbidden && w.Code != http.StatusBadRequest || len(b.cookies) != 0) {
			t.Errorf("%s: %d %v %s", name, w.Code, b.cookies, w.Body)
		}
	}
}

// TestAskedAboutAPerson: what a token does not say, of the same person only.
func TestAskedAboutAPerson(t *testing.T) {
	for name, tc := range map[string]struct {
		claims, info map[string]any
		status       int
	}{
		"an address":            {map[string]any{"email": nil, "email_verified": nil}, map[string]any{"sub": "ann", "email": "ann@corp.example", "email_verified": true}, 303},
		"a group":               {map[string]any{"email": nil, "groups": nil}, map[string]any{"sub": "ann", "groups": []string{"operators"}}, 303},
		"another person":        {map[string]any{"email": nil}, map[string]any{"sub": "bob", "email": "ann@corp.example", "email_verified": true}, 400},
		"nobody":                {map[string]any{"email": nil}, map[string]any{"email": "ann@corp.example", "email_verified": true}, 400},
		"that it is verified":   {map[string]any{"email_verified": nil}, map[string]any{"sub": "ann", "email": "other@corp.example", "email_verified": true}, 403},
		"another group instead": {map[string]any{"email": nil, "groups": []string{"staff"}}, map[string]any{"sub": "ann", "groups": []string{"operators"}}, 403},
	} {
		f := start(t, nil)
		f.claims, f.info = tc.claims, tc.info
		b := f.browser()
		if w := b.signIn(f.fakeProvider); w.Code != tc.status || (w.Code == http.StatusSeeOther) != (len(b.cookies) == 1) {
			t.Errorf("%s: %d %v %s\n%s", name, w.Code, b.cookies, w.Body, &f.log)
		}
	}
}

// TestRefused: tokens and answers that prove nothing. Each leaves no session.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fakeProvider)
		status int
	}{
		"another issuer's token": {func(p *fakeProvider) { p.claims = map[string]any{"iss": "https://evil.example"} }, 400},
		"another audience":       {func(p *fakeProvider) { p.claims = map[string]any{"aud": "other"} }, 400},
		"another party":          {func(p *fakeProvider) { p.claims = map[string]any{"aud": []string{"rouse", "other"}, "azp": "other"} }, 400},
		"another nonce":          {func(p *fakeProvider) { p.claims = map[string]any{"nonce": "x"} }, 400},
		"no nonce":               {func(p *fakeProvider) { p.claims = map[string]any{"nonce": nil} }, 400},
		"an address without end": {func(p *fakeProvider) { p.claims = map[string]any{"email": strings.Repeat("m", 300) + "@corp.example"} }, 400},
		"a subject without end":  {func(p *fakeProvider) { p.claims = map[string]any{"sub": strings.Repeat("m", 300)} }, 400},
		"no subject":             {func(p *fakeProvider) { p.claims = map[string]any{"sub": nil} }, 400},
		"too old":                {func(p *fakeProvider) { p.claims = map[string]any{"exp": time.Now().Add(-2 * time.Minute).Unix()} }, 400},
		"of a clock behind":      {func(p *fakeProvider) { p.claims = map[string]any{"exp": time.Now().Add(-50 * time.Second).Unix()} }, 303},
		"of a clock ahead":       {func(p *fakeProvider) { p.claims = map[string]any{"nbf": time.Now().Add(3 * time.Minute).Unix()} }, 303},
		"of tomorrow":            {func(p *fakeProvider) { p.claims = map[string]any{"nbf": time.Now().Add(24 * time.Hour).Unix()} }, 400},
		"forged":                 {func(p *fakeProvider) { p.forge = true }, 400},
		"not signed": {func(p *fakeProvider) {
			p.signed = func(map[string]any) string { return "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUifQ." }
		}, 400},
		"no token": {func(p *fakeProvider) { p.token = func(string) any { return map[string]any{"access_token": "x"} } }, 503},
		"no JSON":  {func(p *fakeProvider) { p.token = func(string) any { return "<html>" } }, 503},
		"a token without end": {func(p *fakeProvider) {
			p.token = func(s string) any {
				return map[string]any{"access_token": "x", "id_token": s, "more": strings.Repeat("x", 2<<20)}
			}
		}, 503},
		"an answer of another": {func(p *fakeProvider) { p.more = func(q url.Values) { q.Set("iss", "https://evil.example") } }, 400},
		"its own answer":       {func(p *fakeProvider) { p.more = func(q url.Values) { q.Set("iss", issuer) } }, 303},
		"an answer of nobody":  {func(p *fakeProvider) { p.meta = map[string]any{"authorization_response_iss_parameter_supported": true} }, 400},
		"another state":        {func(p *fakeProvider) { p.more = func(q url.Values) { q.Set("state", "x") } }, 400},
		"two states":           {func(p *fakeProvider) { p.more = func(q url.Values) { q.Add("state", q.Get("state")) } }, 400},
		"no code":              {func(p *fakeProvider) { p.more = func(q url.Values) { q.Del("code") } }, 400},
		"a refusal with markup": {func(p *fakeProvider) {
			p.more = func(q url.Values) {
				q.Set("error", "access_denied")
				q.Set("error_description", "<script>alert(1)</script>")
			}
		}, 403},
		"another issuer's documents": {func(p *fakeProvider) { p.meta = map[string]any{"issuer": "https://evil.example"} }, 503},
		"a way over http":            {func(p *fakeProvider) { p.meta = map[string]any{"token_endpoint": "http://id.example/token"} }, 503},
	} {
		f := start(t, nil)
		tc.change(f.fakeProvider)
		b := f.browser()
		w := b.signIn(f.fakeProvider)
		if w.Code != tc.status || (w.Code == http.StatusSeeOther) != (b.cookies["__Host-rouse-session"] != nil) || b.cookies["__Host-rouse-signin"] != nil {
			t.Errorf("%s: %d %v, want %d: %s\n%s", name, w.Code, b.cookies, tc.status, w.Body, &f.log)
		}
		if strings.Contains(w.Body.String(), "<script") || !strings.Contains(w.Header().Get("Content-Security-Policy"), "script-src 'self'") {
			t.Errorf("%s: %v %s", name, w.Header(), w.Body)
		}
	}
}

// TestReplayed: what signed somebody in once does so no more, in that browser and in another; nor does a sign-in that took too long.
func TestReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		b := f.browser()
		w := b.ask(http.MethodGet, pageURL+"/rouse/signin", "")
		cookie := b.cookies["__Host-rouse-signin"]
		if cookie == nil || cookie.SameSite != http.SameSiteLaxMode {
			t.Fatalf("the cookies are %v", b.cookies)
		}
		back := f.authorize(w.Header().Get("Location"))
		other := f.browser()
		if w := other.ask(http.MethodGet, back, ""); w.Code != http.StatusBadRequest || len(other.cookies) > 0 {
			t.Errorf("the link in another browser: %d", w.Code)
		}
		other.signIn(f.fakeProvider) // its own cookie does not fit either
		other.ask(http.MethodGet, pageURL+"/rouse/signin", "")
		if w := other.ask(http.MethodGet, back, ""); w.Code != http.StatusBadRequest {
			t.Errorf("the link in another browser that signs in: %d", w.Code)
		}
		if w := b.ask(http.MethodGet, back, ""); w.Code != http.StatusSeeOther {
			t.Fatalf("the link in its own browser: %d %s", w.Code, w.Body)
		}
		delete(b.cookies, "__Host-rouse-session")
		if w := b.ask(http.MethodGet, back, ""); w.Code != http.StatusBadRequest {
			t.Errorf("the link again: %d", w.Code)
		}
		b.cookies[cookie.Name] = cookie // kept by hand
		if w := b.ask(http.MethodGet, back, ""); w.Code != http.StatusBadRequest || b.cookies["__Host-rouse-session"] != nil {
			t.Errorf("the code again: %d", w.Code)
		}
		w = b.ask(http.MethodGet, pageURL+"/rouse/signin", "")
		back = f.authorize(w.Header().Get("Location"))
		late := *b.cookies[cookie.Name]
		time.Sleep(11 * time.Minute)
		secret, _, _ := strings.Cut(late.Value, ".")
		for _, value := range []string{late.Value, fmt.Sprintf("%s.%d", secret, time.Now().Add(time.Minute).Unix()), secret, secret + ".x", "."} {
			changed := late
			changed.Value = value
			b.cookies[cookie.Name] = &changed
			if w := b.ask(http.MethodGet, back, ""); w.Code != http.StatusBadRequest {
				t.Errorf("late, with the cookie %q: %d", value, w.Code)
			}
		}
	})
}

// TestProviderDown: no sign-in works, the provider is asked again only after a while, and sessions continue.
func TestProviderDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		f.down = true
		b := f.browser()
		for range 3 {
			if w := b.signIn(f.fakeProvider); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" || strings.Contains(w.Body.String(), "EOF") {
				t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
			}
		}
		f.down = false
		if b.signIn(f.fakeProvider); f.asked != 0 {
			t.Errorf("asked %d times at once", f.asked)
		}
		time.Sleep(6 * time.Second)
		if w := b.signIn(f.fakeProvider); w.Code != http.StatusSeeOther || f.asked != 1 {
			t.Errorf("%d after %d questions", w.Code, f.asked)
		}
		f.down = true
		if w := b.ask(http.MethodGet, inside, ""); w.Code != 200 {
			t.Errorf("a session without the provider: %d", w.Code)
		}
		if w := f.browser().signIn(f.fakeProvider); w.Code != http.StatusServiceUnavailable {
			t.Errorf("a code that can't be redeemed: %d", w.Code)
		}
		f.down = false
		if w := f.browser().signIn(f.fakeProvider); w.Code != http.StatusSeeOther {
			t.Errorf("afterwards: %d", w.Code)
		}
	})
}

// TestSecret: the client's secret is read each time, and sent as the provider takes it, once.
func TestSecret(t *testing.T) {
	secret, fault := "", error(nil)
	f := start(t, func(c *signin.Config) { c.Secret = func() (string, error) { return secret, fault } })
	try := func(want string, status int) {
		t.Helper()
		f.client = ""
		if w := f.browser().signIn(f.fakeProvider); w.Code != status || f.client != want {
			t.Errorf("%d, redeemed by %q, want %d and %q", w.Code, f.client, status, want)
		}
	}
	try("form rouse:", http.StatusSeeOther)
	secret = "s1"
	try("basic rouse:s1", http.StatusSeeOther)
	fault = errors.New("no right to read it")
	try("", http.StatusServiceUnavailable)
	f = start(t, func(c *signin.Config) { c.Secret = func() (string, error) { return "s2", nil } })
	f.meta = map[string]any{"token_endpoint_auth_methods_supported": []string{"client_secret_post"}}
	try("form rouse:s2", http.StatusSeeOther)
}

// TestNoWayOut: whatever a link says, a browser is sent to the provider and to the page.
func TestNoWayOut(t *testing.T) {
	f := start(t, nil)
	f.more = func(q url.Values) {
		for _, name := range []string{"redirect", "next", "rd", "return_to", "redirect_uri", "url"} {
			q.Set(name, "https://evil.example")
		}
	}
	b := f.browser()
	w := b.ask(http.MethodGet, pageURL+"/rouse/signin?next=//evil.example&redirect_uri=https://evil.example", "")
	if to := w.Header().Get("Location"); strings.Contains(to, "evil") {
		t.Errorf("sent to %s", to)
	}
	if w := b.ask(http.MethodGet, f.authorize(w.Header().Get("Location")), ""); w.Header().Get("Location") != "/" {
		t.Errorf("sent to %s", w.Header().Get("Location"))
	}
	for _, method := range []string{http.MethodPost, http.MethodHead} {
		if w := b.ask(method, pageURL+"/rouse/signin", ""); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}
