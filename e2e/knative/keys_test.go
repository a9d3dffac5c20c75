package knative

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestKeysOfACluster gives a key for one model to a client, and takes it away again.
func TestKeysOfACluster(t *testing.T) {
	parallel(t)
	f := create(t, "keyed", functionImage, lasting)
	remove := func() { _, _ = f.c.Kn(t.Context(), "rouse", "keys", "revoke", "client-of-keyed") }
	remove() // of a run that was killed; usually there is none
	t.Cleanup(remove)
	key := makeKey(t, f, "client-of-keyed", "--model", "keyed", "--requests-per-minute", "100")
	eventually(t, "the key is known", func() string { return f.answersWith(key, http.StatusOK) })
	for host, name := range map[string]string{f.host(): "the function's host", frontHost: "the front door"} {
		a, err := call(t.Context(), f.c, host, "/v1/chat/completions", chat(f.name, "red"), "X-Api-Key", key)
		if err != nil || a.status != http.StatusOK || a.header.Get("X-Ratelimit-Limit-Requests") != "100" {
			t.Errorf("with the key at %s: got %d %s (%v), limit %q; want an answer, and what is left of 100", name, a.status, a.body, err, a.header.Get("X-Ratelimit-Limit-Requests"))
		}
		a, err = call(t.Context(), f.c, host, "/v1/chat/completions", chat(f.name, "red"), "Authorization", "Bearer "+key+"x")
		if err != nil || a.status != http.StatusUnauthorized {
			t.Errorf("with another key at %s: got %d %s (%v), want a 401", name, a.status, a.body, err)
		}
	}
	a, err := call(t.Context(), f.c, frontHost, "/v1/chat/completions", chat("another", "red"), "Authorization", "Bearer "+key)
	if err != nil || a.status != http.StatusForbidden || !strings.Contains(a.body, "not_allowed") {
		t.Errorf("another model: got %d %s (%v), want a 403", a.status, a.body, err)
	}
	if out, err := f.c.Kn(t.Context(), "rouse", "keys", "revoke", "client-of-keyed"); err != nil {
		t.Fatalf("kn rouse keys revoke: %v: %s", err, out)
	}
	eventually(t, "the key is taken away", func() string { return f.answersWith(key, http.StatusUnauthorized) })
}

// TestALimitIsOneLimit: a client's requests come through both activators, and together they let in what its key allows.
func TestALimitIsOneLimit(t *testing.T) {
	parallel(t)
	const limit, asked = 4, 40
	f := create(t, "limited", functionImage, lasting)
	remove := func() {
		for _, name := range []string{"limited-first", "limited-client"} {
			_, _ = f.c.Kn(t.Context(), "rouse", "keys", "revoke", name)
		}
	}
	remove() // of a run that was killed; usually there is none
	t.Cleanup(remove)
	key := makeKey(t, f, "limited-client", "--requests-per-minute", fmt.Sprint(limit))
	first := makeKey(t, f, "limited-first")
	eventually(t, "the keys are known", func() string { return f.answersWith(first, http.StatusOK) })
	begun, in := time.Now(), 0
	for range asked {
		a, err := call(t.Context(), f.c, f.host(), "/v1/chat/completions", chat(f.name, "red"), "Authorization", "Bearer "+key)
		switch {
		case err == nil && a.status == http.StatusOK:
			in++
		case err != nil || a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "":
			t.Fatalf("got %d %s (%v), want an answer or a 429 that says when to come back", a.status, a.body, err)
		}
	}
	if most := limit + int(time.Since(begun).Minutes()*limit) + 1; in < limit-1 || in > most {
		t.Errorf("%d of %d requests are let in by two activators, want %d, and with what came meanwhile %d at most", in, asked, limit, most)
	}
}

// makeKey is the key that kn rouse keys create prints.
func makeKey(t *testing.T, f *function, name string, flags ...string) string {
	t.Helper()
	out, err := f.c.Kn(t.Context(), append([]string{"rouse", "keys", "create", name}, flags...)...)
	if err != nil {
		t.Fatalf("kn rouse keys create: %v: %s", err, out)
	}
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "rouse-") {
			return line
		}
	}
	t.Fatalf("kn rouse keys create printed no key: %s", out)
	return ""
}

// answersWith says what is missing until each activator answers a chat with the key as it should.
func (f *function) answersWith(key string, want int) string {
	var header []string
	if key != "" {
		header = []string{"Authorization", "Bearer " + key}
	}
	for range 8 { // there are two activators
		a, err := call(f.t.Context(), f.c, f.host(), "/v1/chat/completions", chat(f.name, "red"), header...)
		if err != nil || a.status != want {
			return fmt.Sprintf("got %d %s (%v), want %d", a.status, a.body, err, want)
		}
	}
	return ""
}

// closed takes the entry for clients without a key away, which [install] made: nobody gets in without one.
func closed(t *testing.T, f *function) {
	t.Helper()
	if out, err := f.c.Kn(t.Context(), "rouse", "keys", "revoke", "anonymous"); err != nil {
		t.Fatalf("kn rouse keys revoke: %v: %s", err, out)
	}
	defer func() {
		if out, err := f.c.Kn(t.Context(), "rouse", "keys", "create", "anonymous"); err != nil {
			t.Fatalf("kn rouse keys create: %v: %s", err, out)
		}
		eventually(t, "clients without a key are let in", func() string { return f.answersWith("", http.StatusOK) })
	}()
	eventually(t, "clients without a key are refused", func() string { return f.answersWith("", http.StatusUnauthorized) })
}
