package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// fakeFront is a fake front door. The header X-Tenant names the caller.
type fakeFront struct {
	door *inbound.Door
	// answer answers a request; it may block until the request's context ends.
	answer func(w http.ResponseWriter, r *http.Request, body string)

	mu      sync.Mutex // guards the fields below
	rooms   map[string]activator.Room
	bad     map[string]*api.Error // of models that the caller may not use
	seen    []seen
	running int
	most    int
	limit   int            // of each account's charged requests; 0: none
	charged map[string]int // by account
}

// seen is one received request.
type seen struct {
	at     time.Time
	caller activator.Caller
	terms  activator.Terms
	id     string
	body   string
}

func (f *fakeFront) Caller(r *http.Request) (activator.Caller, error) {
	switch tenant := r.Header.Get("X-Tenant"); tenant {
	case "":
		return activator.Caller{Client: "127.0.0.1", Local: true}, nil
	case "10.0.0.1", "10.0.0.2":
		return activator.Caller{Client: tenant}, nil
	case "nobody":
		return activator.Caller{}, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "who are you?")
	default:
		return activator.Caller{Client: peer.Named(tenant), Account: "key " + tenant}, nil
	}
}

func (f *fakeFront) Charge(_ context.Context, c activator.Caller) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit > 0 && f.charged[c.Account] == f.limit {
		return api.Errorf(http.StatusTooManyRequests, keys.CodeRateLimit, "the key has used its requests").WithRetryAfter(time.Second)
	}
	if f.charged == nil {
		f.charged = map[string]int{}
	}
	f.charged[c.Account]++
	return nil
}

func (f *fakeFront) ReadBody(w http.ResponseWriter, r *http.Request, c activator.Caller) (*inbound.Body, error) {
	return f.door.Read(w, r, c.Client)
}

func (f *fakeFront) OwnHost(host string) bool { return strings.HasPrefix(host, "own.") }

func (f *fakeFront) Room(_ activator.Caller, model string) (activator.Room, *api.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bad := f.bad[model]; bad != nil {
		return activator.Room{}, bad
	}
	room := f.rooms[model]
	room.Free = max(0, room.Free-f.running)
	return room, nil
}

// set sets the capacity of a model's instances.
func (f *fakeFront) set(model string, room activator.Room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rooms[model] = room
}

func (f *fakeFront) ServeLater(w http.ResponseWriter, r *http.Request, c activator.Caller, t activator.Terms) {
	raw, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.seen = append(f.seen, seen{at: time.Now(), caller: c, terms: t, id: r.Header.Get("X-Request-Id"), body: string(raw)})
	f.running++
	f.most = max(f.most, f.running)
	var asked struct{ Model string }
	_ = json.Unmarshal(raw, &asked)
	bad := f.bad[asked.Model]
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()
	if bad != nil {
		api.WriteError(w, bad)
		return
	}
	f.answer(w, r, string(raw))
}

// requests returns the received requests, in order.
func (f *fakeFront) requests() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]seen(nil), f.seen...)
}

// echo answers with the body, after a delay.
func echo(after time.Duration) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, body string) {
		select {
		case <-time.After(after):
		case <-r.Context().Done():
			api.WriteError(w, context.Cause(r.Context()))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Rouse-Instance", "m-1")
		fmt.Fprintf(w, `{"echo":%s,"usage":{"prompt_tokens":3,"completion_tokens":2}}`, body)
	}
}

// bench is a server with its own store. It runs in a synctest bubble.
type bench struct {
	dir   string // of the store
	t     *testing.T
	front *fakeFront
	store *store.Store
	*Server
	handler http.Handler
	stop    func() // ends Run and waits for it
}

func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(store.Config{At: dir, Limits: store.Limits{Shared: activator.Anonymous}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: dir, store: s, front: &fakeFront{door: inbound.New(inbound.Config{}), rooms: map[string]activator.Room{}, bad: map[string]*api.Error{}, answer: echo(time.Second)}}
	b.front.set("m", activator.Room{Slots: 4, Free: 4})
	t.Cleanup(func() {
		b.stop()
		_ = s.Close()
	})
	b.start(cfg)
	return b
}

// start starts a server on the store.
func (b *bench) start(cfg Config) {
	b.t.Helper()
	s, err := New(cfg, b.store, b.front, nil, prometheus.NewRegistry())
	if err != nil {
		b.t.Fatal(err)
	}
	b.Server = s
	b.handler = s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "next %s %s", r.URL.Path, raw)
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { s.Run(ctx) })
	waiting := func(l lineup) (n int) {
		for _, ids := range l.of {
			n += len(ids)
		}
		return n
	}
	b.stop = func() {
		cancel()
		run.Wait()
		if s.memory.used != 0 || len(s.gate.models) != 0 || len(s.lines) != 0 || len(s.batches.running) != 0 || len(s.requests.running) != 0 || len(s.requests.awaited) != 0 || len(s.requests.unfinished) > waiting(s.requests.waiting) {
			b.t.Errorf("left are %d bytes of memory, the models %v in the gate, %d lines, %d batches and %d requests", s.memory.used, s.gate.models, len(s.lines), len(s.batches.running), len(s.requests.running))
		}
	}
}

// unanswered returns the requests without an answer.
func (b *bench) unanswered() (all []store.Job) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.store.Watch(ctx, func(n store.News) {
		for _, ref := range n.Free {
			l, err := b.store.Job(ref.Owner, ref.ID)
			if err != nil {
				b.t.Error(err)
			}
			all = append(all, l)
		}
		cancel()
	})
	return all
}

// do sends a request and returns its answer.
func (b *bench) do(method, path, tenant string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("X-Tenant", tenant)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// want decodes the answer of a request, which must have a status.
func want[T any](b *bench, status int, w *httptest.ResponseRecorder) (v T) {
	b.t.Helper()
	if w.Code != status {
		b.t.Fatalf("got %d %s, want %d", w.Code, w.Body, status)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		b.t.Fatalf("%v: %s", err, w.Body)
	}
	return v
}

// formOf returns a form with those parts; a name with a dot is a file's.
func formOf(parts ...string) (body *bytes.Buffer, media string) {
	body = &bytes.Buffer{}
	form := multipart.NewWriter(body)
	for i := 0; i+1 < len(parts); i += 2 {
		if parts[i] == "file" {
			part, _ := form.CreateFormFile("file", "in.jsonl")
			_, _ = io.WriteString(part, parts[i+1])
			continue
		}
		_ = form.WriteField(parts[i], parts[i+1])
	}
	_ = form.Close()
	return body, form.FormDataContentType()
}

// file uploads an input.
func (b *bench) file(tenant, text string) string {
	b.t.Helper()
	body, media := formOf("purpose", "batch", "file", text)
	return want[fileObject](b, http.StatusOK, b.do(http.MethodPost, pathFiles, tenant, body, "Content-Type", media)).ID
}

// chats returns n lines of chats with a model.
func chats(model string, n int) string {
	var text strings.Builder
	for k := range n {
		fmt.Fprintf(&text, `{"custom_id":"c%d","method":"POST","url":"/v1/chat/completions","body":{"model":%q,"n":%d}}`+"\n", k, model, k)
	}
	return text.String()
}

// create creates a batch of lines.
func (b *bench) create(tenant, lines, window string) batchObject {
	b.t.Helper()
	body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":%q,"metadata":{"k":"v"}}`, b.file(tenant, lines), window)
	return want[batchObject](b, http.StatusOK, b.do(http.MethodPost, pathBatches, tenant, strings.NewReader(body)))
}

func (b *bench) show(tenant, id string) batchObject {
	b.t.Helper()
	return want[batchObject](b, http.StatusOK, b.do(http.MethodGet, pathBatches+"/"+id, tenant, nil))
}

// ended waits until a batch has ended.
func (b *bench) ended(tenant, id string) batchObject {
	b.t.Helper()
	for range 100_000 {
		o := b.show(tenant, id)
		switch o.Status {
		case store.Completed, store.Failed, store.Expired, store.Cancelled:
			return o
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	b.t.Fatal("the batch does not end")
	return batchObject{}
}

// output returns the lines of a file by their custom_id.
func (b *bench) output(tenant string, id *string) map[string]resultLine {
	b.t.Helper()
	out := map[string]resultLine{}
	if id == nil {
		return out
	}
	w := b.do(http.MethodGet, pathFiles+"/"+*id+"/content", tenant, nil)
	if w.Code != http.StatusOK {
		b.t.Fatalf("the file %s: %d %s", *id, w.Code, w.Body)
	}
	for text := range strings.Lines(w.Body.String()) {
		var l resultLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			b.t.Fatalf("a line of the output: %v: %s", err, text)
		}
		if _, twice := out[l.CustomID]; twice {
			b.t.Errorf("%s is there twice", l.CustomID)
		}
		out[l.CustomID] = l
	}
	return out
}
