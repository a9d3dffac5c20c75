package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// One session more than maxSessions ends the one that expires first.
const maxSessions = 1000

type session struct {
	who  who
	ends time.Time
	ctx  context.Context // ends with the session
	end  context.CancelFunc
}

// sessions has all sessions, by a hash of the cookie's value, so that the time of a lookup reveals nothing of it.
type sessions struct {
	ctx context.Context // of the server: all sessions end with it

	mu  sync.Mutex // guards all below
	all map[[sha256.Size]byte]*session
}

func (l *sessions) init(ctx context.Context) { l.ctx, l.all = ctx, map[[sha256.Size]byte]*session{} }

// begin returns the new session's cookie value.
func (l *sessions) begin(person who, lasts time.Duration) string {
	secret := rand.Text()
	at := sha256.Sum256([]byte(secret))
	s := &session{who: person, ends: time.Now().Add(lasts)}
	s.ctx, s.end = context.WithDeadline(l.ctx, s.ends)
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.first(); first != nil && len(l.all) >= maxSessions {
		first.end()
	}
	l.all[at] = s
	context.AfterFunc(s.ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, at)
	})
	return secret
}

// first returns the one that expires first. The caller holds mu.
func (l *sessions) first() (first *session) {
	for _, s := range l.all {
		if s.ctx.Err() == nil && (first == nil || s.ends.Before(first.ends)) {
			first = s
		}
	}
	return first
}

// find returns nil if there is none, or it has ended.
func (l *sessions) find(secret string) *session {
	if secret == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.all[sha256.Sum256([]byte(secret))]
	if s == nil || s.ctx.Err() != nil || !time.Now().Before(s.ends) {
		return nil
	}
	return s
}

type cookies struct {
	session, signIn string
	secure          bool
}

// newCookies returns the cookies of a page at u. Browsers accept the prefix only from that host over https. On this
// machine the port is in the name, because cookies ignore ports.
func newCookies(u *url.URL) cookies {
	if u.Scheme == "https" {
		return cookies{"__Host-rouse-session", "__Host-rouse-signin", true}
	}
	return cookies{"rouse-session-" + u.Port(), "rouse-signin-" + u.Port(), false}
}

// read returns "" if there is none, or more than one.
func (c cookies) read(r *http.Request, name string) string {
	if list := r.CookiesNamed(name); len(list) == 1 {
		return list[0].Value
	}
	return ""
}

// A session's cookie is not sent with requests caused by other sites; a sign-in's is, because the provider links here.
func (c cookies) set(w http.ResponseWriter, name, value string, lasts time.Duration) {
	site := http.SameSiteStrictMode
	if name == c.signIn {
		site = http.SameSiteLaxMode
	}
	age := int(lasts / time.Second)
	if value == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: age, Secure: c.secure, HttpOnly: true, SameSite: site})
}

func (c cookies) clear(w http.ResponseWriter, name string) { c.set(w, name, "", 0) }
