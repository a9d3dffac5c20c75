package signin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/rouse-dev/rouse/cmd/internal/page"
)

const signInTime = 10 * time.Minute

type ticket struct {
	state, nonce, verifier string
}

// ticket returns the ticket of a cookie, SECRET.END, where END is its expiry in Unix seconds; nil: invalid or expired.
func (s *Server) ticket(cookie string) *ticket {
	_, end, found := strings.Cut(cookie, ".")
	at, err := strconv.ParseInt(end, 10, 64)
	if !found || err != nil || time.Now().After(time.Unix(at, 0)) {
		return nil
	}
	of := func(use string) string {
		m := hmac.New(sha256.New, s.key[:])
		m.Write([]byte(use + "." + cookie)) // includes the end: with another one the state does not match
		return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
	}
	return &ticket{state: of("state"), nonce: of("nonce"), verifier: of("verifier")}
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (s *Server) begin(w http.ResponseWriter, r *http.Request) {
	known, err := s.provider.ask()
	if err != nil {
		s.failed(w, err)
		return
	}
	cookie := rand.Text() + "." + strconv.FormatInt(time.Now().Add(signInTime).Unix(), 10)
	t := s.ticket(cookie)
	s.cookies.set(w, s.cookies.signIn, cookie, signInTime)
	http.Redirect(w, r, known.oauth.AuthCodeURL(t.state, oidc.Nonce(t.nonce), oauth2.S256ChallengeOption(t.verifier)), http.StatusSeeOther)
}

func (s *Server) finish(w http.ResponseWriter, r *http.Request) {
	t := s.ticket(s.cookies.read(r, s.cookies.signIn))
	s.cookies.clear(w, s.cookies.signIn)
	q := r.URL.Query()
	if t == nil || len(q["state"]) != 1 || !same(q.Get("state"), t.state) {
		say(w, http.StatusBadRequest, "This sign-in did not begin in this browser, took longer than ten minutes, or was used before.")
		return
	}
	known, err := s.provider.ask()
	if err != nil {
		s.failed(w, err)
		return
	}
	if issuer := q.Get("iss"); issuer != s.cfg.Issuer && (issuer != "" || known.saysWhose) {
		s.cfg.Log.Warn("a sign-in is refused: its answer is of another issuer", "issuer", clip(issuer))
		say(w, http.StatusBadRequest, "The answer is not of the provider that was asked.")
		return
	}
	if code := q.Get("error"); code != "" {
		s.cfg.Log.Info("the provider refuses a sign-in", "error", clip(code), "description", clip(q.Get("error_description")))
		say(w, http.StatusForbidden, "The provider did not sign you in: "+clip(code)+". "+clip(q.Get("error_description")))
		return
	}
	person, err := s.provider.redeem(r.Context(), q.Get("code"), *t)
	if err != nil {
		s.failed(w, err)
		return
	}
	if !s.cfg.allows(person) {
		s.cfg.Log.Warn("a person may not sign in: no group and no verified address is allowed", "subject", person.Subject, "email", person.Email, "verified", person.verified, "groups", len(person.groups))
		say(w, http.StatusForbidden, "You are "+s.named(person)+" to the provider, and may not administer this server. Whoever runs it names those who may by their groups or verified addresses.")
		return
	}
	if old := s.sessions.find(s.cookies.read(r, s.cookies.session)); old != nil {
		old.end()
	}
	s.cookies.set(w, s.cookies.session, s.sessions.begin(person, s.cfg.Session), s.cfg.Session)
	s.cfg.Log.Info("a person has signed in", "subject", person.Subject, "email", person.Email)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Server) named(w who) string {
	if w.Email != "" {
		return clip(w.Email)
	}
	return clip(w.Subject)
}

// The provider's message only goes to the log.
func (s *Server) failed(w http.ResponseWriter, err error) {
	s.cfg.Log.Warn("a sign-in has failed", "error", clip(err.Error()))
	if errors.Is(err, errRefused) {
		say(w, http.StatusBadRequest, "The provider does not vouch for this sign-in: it was used before, is too old, or has an address or a name of you that is too long.")
		return
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(retryProvider/time.Second)))
	say(w, http.StatusServiceUnavailable, "The provider that signs people in can't be asked now. The log of this server says why.")
}

// clip bounds text from others.
func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), mostText)], "") }

var note = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>Not signed in · Rouse</title>
<link rel="icon" href="/rouse/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/rouse/page/page.css">
</head>
<body>
<main><section class="door">
<h1>Not signed in</h1>
<p>{{.Message}}</p>
<p><a href="{{.Again}}">Sign in again</a> · <a href="/">To the page</a></p>
</section></main>
</body>
</html>
`))

func say(w http.ResponseWriter, status int, message string) {
	page.Protect(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = note.Execute(w, struct{ Message, Again string }{message, page.PathSignIn}) // the browser may have left
}
