package activator

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

// leaver is a client that leaves at some stage of a request.
type leaver struct {
	name string
	// sends returns the part of the request that is sent.
	sends func(request string) string
	// until waits for the stage, by reading the answer.
	until func(answer *bufio.Reader)
	// model is the requested model.
	model string
}

func allOf(request string) string { return request }

func leavers() []leaver {
	soon := func(*bufio.Reader) { <-time.After(time.Duration(rand.IntN(4000)) * time.Microsecond) } // any moment is right
	at := func(*bufio.Reader) {}
	event := func(a *bufio.Reader) {
		for line := ""; !strings.HasPrefix(line, "data: "); {
			var err error
			if line, err = a.ReadString('\n'); err != nil {
				return
			}
		}
	}
	return []leaver{
		{"in the header", func(s string) string { return s[:40] }, at, "m"},
		{"in the body", func(s string) string { return s[:len(s)-20] }, soon, "m"},
		{"with a body that is no JSON", func(s string) string { return strings.Replace(s, `{"model"`, `{"model}`, 1) }, at, "m"},
		{"with the last byte", allOf, at, "m"},
		{"while it waits", allOf, soon, "never"},
		{"in a wake", allOf, soon, "wakes"},
		{"in the stream", allOf, event, "m"},
		{"at some time", allOf, soon, "m"},
	}
}

// TestLeaveAtEveryStage: clients leave at every stage, some with a reset, and the key of half of them is revoked
// meanwhile. Nothing remains: no slot and no place in a queue, no memory of a body, no request that counts against
// the key, and no unused tokens.
func TestLeaveAtEveryStage(t *testing.T) {
	const each, tokens = 24, 1_000_000
	declared := []apikey.Key{{Name: "stays", Rights: apikey.Rights{Concurrent: 1000, TokensPerMinute: tokens}}, {Name: "goes", Rights: apikey.Rights{Concurrent: 1000, TokensPerMinute: tokens}}}
	b, store := withKeys(t, declared...)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Awake)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for n := range 5 {
			streamEvents(w, fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"%d\"}}]}\n\n", n))
			select {
			case <-time.After(time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
		streamEvents(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n")
	}
	b.function("never", nil)
	asleep := b.instance(b.function("wakes", nil), "wakes-0001", api.Asleep)
	asleep.wakeTakes, asleep.chat = 20*time.Millisecond, i.chat
	b.grant(asleep, 1)
	before := runtime.NumGoroutine()
	address := strings.TrimPrefix(b.ts.URL, "http://")
	var all sync.WaitGroup
	for n := range each {
		for k, l := range leavers() {
			all.Go(func() { l.leave(t, address, []string{"stays", "goes"}[(n+k)%2], n%3 == 0) })
		}
		if n == each/2 {
			store.Load(&apikey.File{Keys: declared[:1]})
		}
	}
	all.Wait()
	b.eventually("nothing is left", func() bool {
		for _, f := range []api.FunctionName{name, "default/never", "default/wakes"} {
			if s, _ := b.a.Stats(f); s.Running > 0 || s.Waiting > 0 || s.HeldBytes > 0 {
				return false
			}
		}
		return b.a.door.Memory().Used() == 0 && b.a.inFlight.n.Load() == 0
	})
	b.eventually("the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+10 })
	if i.served.Load() == 0 || asleep.wakes.Load() == 0 {
		t.Errorf("%d requests were served, %d wakes: the test does not test what it should", i.served.Load(), asleep.wakes.Load())
	}
	checkAccount(t, store, tokens)
}

// leave sends the client's part of the request, waits for its stage, and leaves.
func (l leaver) leave(t *testing.T, address, key string, reset bool) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if reset {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	body := fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":1000,"messages":[{"role":"user","content":"hello"}]}`, l.model)
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer k-%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, key, len(body), body)
	if _, err := io.WriteString(conn, l.sends(request)); err != nil {
		t.Errorf("%s: %v", l.name, err)
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	l.until(bufio.NewReader(conn))
}

// checkAccount checks that a key has all its slots back, and all tokens but the used ones.
func checkAccount(t *testing.T, store *keys.Store, tokens int) {
	t.Helper()
	r, _ := http.NewRequest(http.MethodPost, "http://localhost"+chatPath, nil)
	r.Header.Set("Authorization", "Bearer k-stays")
	account, err := store.Authenticate(r)
	if err != nil {
		t.Fatal(err)
	}
	left := http.Header{}
	for n := range 1000 {
		charge, err := account.Admit(t.Context(), time.Now(), control.Use{Requests: 1, Running: 1})
		if err != nil {
			t.Fatalf("%d of 1000 places of the key are free: %v", n, err)
		}
		if n == 0 {
			charge.Describe(left)
		}
	}
	if n, err := strconv.Atoi(left.Get("X-Ratelimit-Remaining-Tokens")); err != nil || n < tokens-20_000 || n > tokens {
		t.Errorf("%s of %d tokens are left: more are gone than were used", left.Get("X-Ratelimit-Remaining-Tokens"), tokens)
	}
}
