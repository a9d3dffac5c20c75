package activator

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

// later serves a chat for a caller whose client has disconnected.
func (b *bench) later(c Caller, t Terms, body string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(body))
	w := httptest.NewRecorder()
	b.a.ServeLater(w, r, c, t)
	return w
}

// caller returns a key's caller, as it is stored.
func (b *bench) caller(key string) (c Caller) {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	found, err := b.a.Caller(r)
	if err != nil {
		b.t.Fatal(err)
	}
	raw, err := json.Marshal(found)
	if err != nil {
		b.t.Fatal(err)
	}
	if strings.Contains(string(raw), key) && key != "" {
		b.t.Errorf("the caller is kept with its key: %s", raw)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// TestInTheBackground: a background request uses a free slot, wakes nothing, is refused rather than wait, and is no
// demand.
func TestInTheBackground(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	b.grant(i, 1)
	c := b.caller("")
	if w := b.later(c, Terms{Background: true}, `{"model":"m"}`); w.Code != http.StatusServiceUnavailable || i.wakes.Load() != 0 {
		t.Errorf("while it sleeps: got %d %s and %d wakes", w.Code, w.Body, i.wakes.Load())
	}
	if room, err := b.a.Room(c, "m"); err != nil || room.Free != 0 || room.Slots != 4 {
		t.Errorf("while it sleeps there is room for %+v, %v", room, err)
	}
	b.a.ObserveInstance(i.set(api.Awake))
	answers, hold := make(chan struct{}), make(chan struct{})
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		answers <- struct{}{}
		<-hold
		answerOnce(w, r)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if w := b.later(c, Terms{Background: true}, `{"model":"m","priority":-3}`); w.Code != http.StatusOK {
				t.Errorf("awake: got %d %s", w.Code, w.Body)
			}
		})
		<-answers
	}
	if d := b.demand(name); d.Running != 0 || d.Waiting != 0 || !d.LastRequest.IsZero() {
		t.Errorf("the demand is %+v, want none, now or before", d)
	}
	if room, err := b.a.Room(c, "m"); err != nil || room.Free != 2 || room.Slots != 4 {
		t.Errorf("there is room for %+v, %v; want 2 of 4", room, err)
	}
	all.Go(func() { b.later(c, Terms{}, `{"model":"m"}`) })
	<-answers
	if d := b.demand(name); d.Running != 1 {
		t.Errorf("with an ordinary one the demand is %+v, want one that runs", d)
	}
	close(hold)
	all.Wait()
	if d := b.demand(name); d.Background != 0 || d.Running != 0 {
		t.Errorf("%d slots are in use, and %d in the background", d.Running, d.Background)
	}
	if _, err := b.a.Room(c, "nope"); err == nil || err.Status != http.StatusNotFound {
		t.Errorf("room of a model that is not there: %v", err)
	}
	if w := b.later(c, Terms{}, `{"model":"nope"}`); w.Code != http.StatusNotFound {
		t.Errorf("a model that is not there: %d", w.Code)
	}
}

// TestInTheBackgroundIsEvicted: its priority is below 0, whatever it claims, so that others can have its slot.
func TestInTheBackgroundIsEvicted(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", func(f *api.Function) { f.Concurrency, f.Hold.EvictSheddable = 1, true })
	i := startFake(b.t, name, "m-0001", 1)
	i.report = b.a.ObserveInstance
	b.a.ObserveInstance(i.set(api.Awake))
	running := make(chan struct{})
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-First") != "" {
			close(running)
			<-r.Context().Done()
			return
		}
		answerOnce(w, r)
	}
	c := b.caller("")
	c.Trusted = true
	evicted := make(chan *httptest.ResponseRecorder)
	go func() {
		r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m","priority":-8}`))
		r.Header.Set("X-First", "1")
		w := httptest.NewRecorder()
		b.a.ServeLater(w, r, c, Terms{Background: true})
		evicted <- w
	}()
	<-running
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("an ordinary request: %s %s", resp.Status, got)
	}
	if w := <-evicted; w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), queue.CodeEvicted) {
		t.Errorf("the one in the background: %d %s", w.Code, w.Body)
	}
}

// TestServedForAKey: a later request is subject to its key's rules at the time of serving.
func TestServedForAKey(t *testing.T) {
	b, store := withKeys(t, apikey.Key{Name: "a", Tenant: "acme", Rights: apikey.Rights{Models: []string{"m"}, RequestsPerMinute: 2}}, apikey.Key{Name: "b", Tenant: "acme"}, apikey.Key{Name: "c"})
	b.instance(b.function("m", nil), "m-0001", api.Awake)
	b.instance(b.function("n", nil), "n-0001", api.Awake)
	mine := b.caller("k-a")
	if mine.Owner() != b.caller("k-b").Owner() || mine.Owner() == b.caller("k-c").Owner() {
		t.Errorf("the owners are %q, %q and %q, want the tenants", mine.Owner(), b.caller("k-b").Owner(), b.caller("k-c").Owner())
	}
	if _, err := b.a.Room(mine, "n"); err == nil || err.Status != http.StatusForbidden {
		t.Errorf("room of a model that the key may not use: %v", err)
	}
	if _, err := b.a.Room(mine, "x"); err == nil || err.Status != http.StatusForbidden {
		t.Errorf("room of a model that is not there: %v, want what it hears of others", err)
	}
	for want, model := range map[int]string{http.StatusOK: "m", http.StatusForbidden: "n"} {
		if w := b.later(mine, Terms{}, `{"model":"`+model+`"}`); w.Code != want {
			t.Errorf("%s: got %d %s, want %d", model, w.Code, w.Body, want)
		}
	}
	if w := b.later(mine, Terms{}, `{"model":"m","priority":-1}`); w.Code != http.StatusForbidden {
		t.Errorf("a priority that the key may not claim: %d %s", w.Code, w.Body)
	}
	b.later(mine, Terms{}, `{"model":"m"}`)
	if w := b.later(mine, Terms{Background: true}, `{"model":"m"}`); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), keys.CodeRateLimit) {
		t.Errorf("beyond the key's limit: %d %s", w.Code, w.Body)
	}
	if w := b.later(Caller{Client: "127.0.0.1", Local: true}, Terms{}, `{"model":"m"}`); w.Code != http.StatusUnauthorized {
		t.Errorf("of who had no key before keys were needed: %d %s", w.Code, w.Body)
	}
	store.Load(&apikey.File{Keys: []apikey.Key{{Name: "b", Hash: apikey.Hash("k-b"), Tenant: "acme"}}})
	if w := b.later(mine, Terms{}, `{"model":"m"}`); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "revoked") {
		t.Errorf("after the key was revoked: %d %s", w.Code, w.Body)
	}
	if _, err := b.a.Room(mine, "m"); err == nil || err.Status != http.StatusUnauthorized {
		t.Errorf("room for a key that was revoked: %v", err)
	}
}

// TestLeavingIsCharged: what a key leaves counts against its limit of requests, once, when it is left.
func TestLeavingIsCharged(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "a", Tenant: "acme", Rights: apikey.Rights{RequestsPerMinute: 2}}, apikey.Key{Name: "b"})
	b.instance(b.function("m", nil), "m-0001", api.Awake)
	mine := b.caller("k-a")
	for n := range 2 {
		if err := b.a.Charge(t.Context(), mine); err != nil {
			t.Errorf("request %d: %v", n, err)
		}
	}
	if e := api.AsError(b.a.Charge(t.Context(), mine)); e.Status != http.StatusTooManyRequests || e.Code != keys.CodeRateLimit || e.RetryAfter <= 0 {
		t.Errorf("beyond the key's limit: %+v", e)
	}
	for range 3 {
		if w := b.later(mine, Terms{Charged: true}, `{"model":"m"}`); w.Code != http.StatusOK {
			t.Errorf("what was charged before: %d %s", w.Code, w.Body)
		}
	}
	if w := b.later(mine, Terms{}, `{"model":"m"}`); w.Code != http.StatusTooManyRequests {
		t.Errorf("what was not: %d %s", w.Code, w.Body)
	}
	if err := b.a.Charge(t.Context(), b.caller("k-b")); err != nil {
		t.Errorf("another key's: %v", err)
	}
	if err := startBench(t, nil).a.Charge(t.Context(), Caller{Client: "127.0.0.1"}); err != nil {
		t.Errorf("without keys: %v", err)
	}
	if e := api.AsError(b.a.Charge(t.Context(), Caller{})); e.Status != http.StatusUnauthorized {
		t.Errorf("a key that is gone: %+v", e)
	}
}

// TestAnonymousOwnsNothing: if some clients have keys, one without a key can store nothing.
func TestAnonymousOwnsNothing(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: apikey.Anonymous}, apikey.Key{Name: "a"})
	if _, err := b.a.Caller(httptest.NewRequest(http.MethodGet, "/", nil)); err == nil || api.AsError(err).Status != http.StatusUnauthorized {
		t.Errorf("got %v, want a 401", err)
	}
	if c := startBench(t, nil).caller(""); c.Owner() != Anonymous {
		t.Errorf("without keys the owner is %q", c.Owner())
	}
	s := keys.NewStore(nil)
	now := time.Now()
	s.Load(&apikey.File{Keys: []apikey.Key{{Name: "old", Hash: apikey.Hash("k"), Expires: now.Add(-time.Second)}}})
	if _, err := s.Account("key " + apikey.Hash("k")); err == nil || api.AsError(err).Status != http.StatusUnauthorized {
		t.Errorf("an expired key: %v", err)
	}
}

type silentOthers struct{}

func (silentOthers) Served(control.ClientUse) {}

// TestBackgroundBringsItsPlace: beside other activators a background request brings a place in the order of the
// instance's slots, behind all others.
func TestBackgroundBringsItsPlace(t *testing.T) {
	b := startBench(t, nil, func(d *Deps) { d.Others = silentOthers{} })
	i := b.instance(b.function("m", nil), "m-0001", api.Awake)
	turns := make(chan control.Turn, 1)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		turns <- control.TakeTurn(r.Header)
		answerOnce(w, r)
	}
	for _, test := range []struct {
		body     string
		terms    Terms
		priority int
	}{{`{"model":"m"}`, Terms{}, 0}, {`{"model":"m"}`, Terms{Background: true}, background}, {`{"model":"m","priority":3}`, Terms{Background: true}, background}} {
		if w := b.later(b.caller(""), test.terms, test.body); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", test.body, w.Code, w.Body)
		}
		if turn := <-turns; turn.Client == 0 || turn.Priority != test.priority {
			t.Errorf("%s: the place is %+v, want the priority %d", test.body, turn, test.priority)
		}
	}
}
