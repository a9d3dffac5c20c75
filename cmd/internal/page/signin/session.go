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

// maxSessions bounds the sessions that there are; one more ends the one that has the least time left.
const maxSessions = 1000

// session is one browser of one person.
type session struct {
	who  who
	ends time.Time
	ctx  context.Context // ends with it
	end  context.CancelFunc
}

// sessions are all sessions, by the sum of what is in the browser's cookie: a look-up's time tells nothing of it.
type sessions struct {
	ctx context.Context // of the server

	mu  sync.Mutex // guards what follows
	all map[[sha256.Size]byte]*session
}

func (l *sessions) init(ctx context.Context) { l.ctx, l.all = ctx, map[[sha256.Size]byte]*session{} }

// begin makes a session and returns what its cookie has.
func (l *sessions) begin(person who, lasts time.Duration) string {
	secret := rand.Text()
	at := sha256.Sum256([]byte(secret))
	s := &session{who: person, ends: time.Now().Add(lasts)}
	s.ctx, s.end = context.WithDeadline(l.ctx, s.ends)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= maxSessions {
		l.first().end()
	}
	l.all[at] = s
	context.AfterFunc(s.ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, at)
	})
	return secret
}

// first is the session that ends first of those that have not ended. The caller holds the lock.
func (l *sessions) first() (first *session) {
	for _, s := range l.all {
		if s.ctx.Err() == nil && (first == nil || s.ends.Before(first.ends)) {
			first = s
		}
	}
	return first
}

// find is the session of a cookie; nil: there is none, or it has ended.
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

// cookies are the names and the kind of the page's cookies.
type cookies struct {
	session, signIn string
	secure          bool
}

// newCookies says what the cookies of a page at u are. The prefix has a browser take them from that host over https alone. A page
// of this machine may have http, where browsers refuse that; its port is in the name, because cookies know none.
func newCookies(u *url.URL) cookies {
	if u.Scheme == "https" {
		return cookies{"__Host-rouse-session", "__Host-rouse-signin", true}
	}
	return cookies{"rouse-session-" + u.Port(), "rouse-signin-" + u.Port(), false}
}

// read is a cookie's value; empty: there is none, or more than one.
func (c cookies) read(r *http.Request, name string) string {
	if list := r.CookiesNamed(name); len(list) == 1 {
		return list[0].Value
	}
	return ""
}

// set gives a browser a cookie. That of a session goes with no request that another site causes; that of a sign-in with those that
// lead here, for the provider does.
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
