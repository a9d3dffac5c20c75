package jobs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// TestUploadPlaces: a client that uploads slowly has no more than its own places, and others upload meanwhile.
func TestUploadPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		body, media := formOf("purpose", "batch", "file", good)
		text := body.String()
		put := func(tenant string) *httptest.ResponseRecorder {
			return b.do(http.MethodPost, pathFiles, tenant, strings.NewReader(text), "Content-Type", media)
		}
		var slow sync.WaitGroup
		var ends []*io.PipeWriter
		for range 8 {
			in, out := io.Pipe()
			ends = append(ends, out)
			slow.Go(func() {
				if w := b.do(http.MethodPost, pathFiles, "slow", in, "Content-Type", media); w.Code != http.StatusOK {
					t.Errorf("a slow upload: %d %s", w.Code, w.Body)
				}
			})
		}
		synctest.Wait()
		if w := put("slow"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "8 of one client") {
			t.Errorf("one more of the same client: %d %s", w.Code, w.Body)
		}
		for range 3 {
			if w := put("other"); w.Code != http.StatusOK {
				t.Errorf("another client: %d %s", w.Code, w.Body)
			}
		}
		for _, out := range ends {
			_, _ = io.WriteString(out, text)
			_ = out.Close()
		}
		slow.Wait()
		if w := put("slow"); w.Code != http.StatusOK {
			t.Errorf("after its slow ones: %d %s", w.Code, w.Body)
		}
		if len(b.uploads.by) != 0 || b.uploads.taken != 0 {
			t.Errorf("left are %d places of %v", b.uploads.taken, b.uploads.by)
		}
	})
}

// TestAddressWithoutKey: of what all clients without a key may leave, an address has a part. What has ended does not count.
func TestAddressWithoutKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{MaxLater: 16})
		b.front.answer = echo(time.Minute)
		ask := func(client string, want int) {
			t.Helper()
			if w := b.later(client, `{"model":"m"}`); w.Code != want {
				t.Errorf("%s: %d %s, want %d", client, w.Code, w.Body, want)
			}
		}
		ask("10.0.0.1", http.StatusAccepted)
		ask("10.0.0.1", http.StatusAccepted)
		ask("10.0.0.1", http.StatusTooManyRequests)
		ask("10.0.0.2", http.StatusAccepted)
		for range 13 {
			ask("", http.StatusAccepted) // of this machine
		}
		ask("10.0.0.2", http.StatusTooManyRequests) // all together have as many as may be
		time.Sleep(time.Hour)
		ask("10.0.0.1", http.StatusAccepted)
	})
}

// TestCharged: uploads, batches and requests that are answered later count against the limits of their key, and are not
// counted again when they are served.
func TestCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		body, media := formOf("purpose", "batch", "file", good)
		form := body.String()
		var id string
		calls := map[string]func() *httptest.ResponseRecorder{
			"upload": func() *httptest.ResponseRecorder {
				return b.do(http.MethodPost, pathFiles, "a", strings.NewReader(form), "Content-Type", media)
			},
			"batch": func() *httptest.ResponseRecorder {
				return b.do(http.MethodPost, pathBatches, "a", strings.NewReader(`{"input_file_id":"`+id+`","endpoint":"/v1/chat/completions","completion_window":"24h"}`))
			},
			"messages": func() *httptest.ResponseRecorder {
				return b.do(http.MethodPost, pathMessages, "a", strings.NewReader(`{"requests":[{"custom_id":"x","params":{"model":"m","max_tokens":1,"messages":[]}}]}`))
			},
			"later": func() *httptest.ResponseRecorder { return b.later("a", `{"model":"m"}`) },
			"background": func() *httptest.ResponseRecorder {
				return b.do(http.MethodPost, "/v1/responses", "a", strings.NewReader(`{"model":"m","input":"x","background":true}`))
			},
		}
		made := converse[conversationObject](b, http.StatusOK, http.MethodPost, "", "{}")
		calls["items"] = func() *httptest.ResponseRecorder {
			return b.do(http.MethodGet, pathConversations+"/"+made.ID+"/items", "a", nil)
		}
		id = want[fileObject](b, http.StatusOK, calls["upload"]()).ID
		for name, call := range calls {
			before := b.front.charged["key a"]
			if w := call(); w.Code/100 != 2 || b.front.charged["key a"] != before+1 {
				t.Errorf("%s: %d %s, charged %d times", name, w.Code, w.Body, b.front.charged["key a"]-before)
			}
		}
		time.Sleep(2 * time.Hour)
		for _, r := range b.front.requests() {
			if later := r.id[:4] == "asyn" || r.id[:4] == "resp"; r.terms.Charged != later {
				t.Errorf("the request %s is served as %+v", r.id, r.terms)
			}
		}
		stored := b.store.Bytes()
		b.front.limit = b.front.charged["key a"]
		for name, call := range calls {
			if w := call(); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || b.store.Bytes() != stored {
				t.Errorf("%s beyond the limit: %d %s, %d bytes more", name, w.Code, w.Body, b.store.Bytes()-stored)
			}
		}
	})
}

// slowly is objects whose files take a second to open.
type slowly struct {
	store.Objects
	mu         sync.Mutex // guards the fields below
	now, most  map[string]int
	all, often int
}

func (o *slowly) Open(key string, from int64) (io.ReadCloser, error) {
	owner := strings.Split(key, "/")[1]
	o.mu.Lock()
	o.all++
	o.now[owner]++
	o.most[owner], o.often = max(o.most[owner], o.now[owner]), max(o.often, o.all)
	o.mu.Unlock()
	time.Sleep(time.Second)
	o.mu.Lock()
	o.all--
	o.now[owner]--
	o.mu.Unlock()
	return o.Objects.Open(key, from)
}

// TestChecks: an owner's inputs are checked one after the other, within the bound of memory; another's need not wait
// for all of them.
func TestChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.stop()
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		in, err := store.OpenFolder(t.TempDir(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		slow := &slowly{Objects: in, now: map[string]int{}, most: map[string]int{}}
		if b.store, err = store.OpenIn(slow, store.Config{Limits: store.Limits{Shared: activator.Anonymous}}, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.store.Close() })
		b.start(Config{})
		last := map[string]batchObject{}
		for range 20 {
			last["many"] = b.create("many", "no line\n", "24h")
		}
		for _, owner := range []string{"a", "b", "c", "d"} {
			last[owner] = b.create(owner, "no line\n", "24h")
		}
		time.Sleep(500 * time.Millisecond)
		if want := 4 * 3 * int64(b.cfg.MaxLine); b.memory.used != want {
			t.Errorf("four checks are charged %d bytes, want %d", b.memory.used, want)
		}
		began := time.Now()
		for _, owner := range []string{"a", "b", "c", "d"} {
			b.ended(owner, last[owner].ID)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("beside 20 batches of one owner, those of four others took %s", took)
		}
		b.ended("many", last["many"].ID)
		if slow.often != 4 || slow.most["tenant=20many"] != 1 {
			t.Errorf("%d were checked at once, %v of each owner", slow.often, slow.most)
		}
	})
}

// TestAsManyAtOnce: a job that is being stored counts like a stored one; one that could not be stored no longer counts.
func TestAsManyAtOnce(t *testing.T) {
	fake := s3test.NewFake()
	stores, refuse := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	at := s3test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, store.PrefixAsync) && !first.Swap(true) {
			close(stores)
			<-refuse
			s3test.Refuse(w, http.StatusForbidden, "AccessDenied")
			return
		}
		fake.ServeHTTP(w, r)
	}))
	s, err := store.Open(store.Config{S3: at, At: "s3://bucket", Limits: store.Limits{Shared: activator.Anonymous}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, store: s, front: &fakeFront{door: inbound.New(inbound.Config{}), rooms: map[string]activator.Room{}, bad: map[string]*api.Error{}, answer: echo(time.Hour)}}
	b.front.set("m", activator.Room{Slots: 4, Free: 4})
	b.start(Config{MaxLater: 1})
	defer func() {
		b.stop()
		_ = s.Close()
	}()
	code := make(chan int)
	go func() { code <- b.later("a", `{"model":"m"}`).Code }()
	<-stores
	if w := b.later("a", `{"model":"m"}`); w.Code != http.StatusTooManyRequests {
		t.Errorf("beside one that is being stored: %d %s", w.Code, w.Body)
	}
	close(refuse)
	if code := <-code; code < http.StatusBadRequest {
		t.Errorf("the one that could not be stored: %d", code)
	}
	if w := b.later("a", `{"model":"m"}`); w.Code != http.StatusAccepted {
		t.Errorf("after it: %d %s", w.Code, w.Body)
	}
}

// TestTooLargeEndsTheConnection: package net/http ends it, however many writers wrap its own.
func TestTooLargeEndsTheConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := newPaced(newTimed(newTimed(w, r), r), r, 4)
		if _, err := io.ReadAll(in); err == nil {
			t.Error("all was read")
		}
	}))
	defer server.Close()
	resp, err := http.Post(server.URL, "text/plain", strings.NewReader("12345"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if !resp.Close {
		t.Error("the connection stays")
	}
}
