package jobs

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
)

// respond answers with a response, after a delay.
func respond(after time.Duration) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, body string) {
		select {
		case <-time.After(after):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"resp_runtime","object":"response","status":"completed","store":false,"output":[],"asked":%s}`, body)
	}
}

// stored holds the tested fields of a response.
type stored struct {
	ID, Status        string
	Store, Background bool
	Previous          string `json:"previous_response_id"`
	Error             *struct{ Code, Message string }
	Asked             struct{ Input any }
}

func (b *bench) respond(tenant, body string, header ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.do(http.MethodPost, responsesPath, tenant, strings.NewReader(body), append([]string{"Content-Type", "application/json"}, header...)...)
}

// ends waits until a response has ended.
func (b *bench) ends(tenant, id string) stored {
	b.t.Helper()
	for range 10_000 {
		if r := want[stored](b, http.StatusOK, b.do(http.MethodGet, responsesPath+"/"+id, tenant, nil)); r.Status != "queued" && r.Status != "in_progress" {
			return r
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	b.t.Fatal("it does not end")
	return stored{}
}

// answers sets the front door's handler of requests for responses.
func (b *bench) answers(answer func(http.ResponseWriter, *http.Request, string)) {
	b.front.answer = answer
	b.handler = b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		answer(w, r, string(raw))
	}))
}

// TestStored: a response is stored on request, for its tenant; other requests are passed through.
func TestStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		for _, body := range []string{`{"model":"m", "input":"x"}`, `{"store":false}`, `no JSON`} {
			if w := b.respond("a", body); w.Body.String() != "next /v1/responses "+body {
				t.Errorf("%s: %d %s", body, w.Code, w.Body)
			}
		}
		if w := b.respond("nobody", `{"store":true}`); w.Body.String() != `next /v1/responses {"store":true}` {
			t.Errorf("who owns nothing: %d %s", w.Code, w.Body)
		}
		b.answers(respond(0))
		r := want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"x","store":true}`))
		path := responsesPath + "/" + r.ID
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if w := b.do(method, path, "b", nil); w.Code != http.StatusNotFound {
				t.Errorf("another tenant's: %s is %d %s", method, w.Code, w.Body)
			}
		}
		for _, path := range []string{path + "/input_items", path + "/cancel"} {
			method := http.MethodGet
			if strings.HasSuffix(path, "cancel") {
				method = http.MethodPost
			}
			if w := b.do(method, path, "b", nil); w.Code != http.StatusNotFound {
				t.Errorf("another tenant's: %s is %d %s", path, w.Code, w.Body)
			}
		}
		if w := b.do(http.MethodPost, path+"/cancel", "a", nil); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "background") {
			t.Errorf("cancel: %d %s", w.Code, w.Body)
		}
		if w := b.do(http.MethodGet, path+"?stream=true", "a", nil); w.Code != http.StatusBadRequest {
			t.Errorf("streamed again: %d %s", w.Code, w.Body)
		}
		if w := b.do(http.MethodGet, responsesPath+"/x/y/z", "a", nil); w.Code != http.StatusNotFound {
			t.Errorf("another path: %d %s", w.Code, w.Body)
		}
		b.stop()
		b.start(Config{})
		if got := want[stored](b, http.StatusOK, b.do(http.MethodGet, path, "a", nil)); got.ID != r.ID || !got.Store || got.Status != "completed" {
			t.Errorf("after a restart: %+v", got)
		}
		if d := want[deleted](b, http.StatusOK, b.do(http.MethodDelete, path, "a", nil)); !d.Deleted || d.Object != "response" || b.store.Bytes() != 0 {
			t.Errorf("deleted: %+v, %d bytes", d, b.store.Bytes())
		}
		if w := b.do(http.MethodGet, path, "a", nil); w.Code != http.StatusNotFound {
			t.Errorf("after that: %d %s", w.Code, w.Body)
		}
	})
}

// TestBackground: a background response is served without its client, also by the next server, and is found by its
// id.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.answers(respond(time.Minute))
		first := want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":[1],"background":true,"instructions":"be brief"}`))
		if first.Status != "queued" || !first.Background || !first.Store || !strings.HasPrefix(first.ID, "resp_") {
			t.Errorf("taken in as %+v", first)
		}
		synctest.Wait()
		if r := want[stored](b, http.StatusOK, b.do(http.MethodGet, responsesPath+"/"+first.ID, "a", nil)); r.Status != "in_progress" {
			t.Errorf("while it is served it is %+v", r)
		}
		if w := b.do(http.MethodGet, responsesPath+"/"+first.ID, "b", nil); w.Code != http.StatusNotFound {
			t.Errorf("another tenant's: %d %s", w.Code, w.Body)
		}
		b.stop()
		b.start(Config{})
		b.answers(respond(time.Minute))
		if r := b.ends("a", first.ID); r.ID != first.ID || r.Status != "completed" || !r.Background || !r.Store {
			t.Errorf("it ended as %+v", r)
		}
		if l := b.unanswered(); len(l) != 0 {
			t.Errorf("requests are left: %v", l)
		}
		second := want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":[2],"background":true,"previous_response_id":"`+first.ID+`"}`))
		if r := b.ends("a", second.ID); r.Previous != first.ID || len(r.Asked.Input.([]any)) != 2 {
			t.Errorf("what goes on from it: %+v", r)
		}
		for body, words := range map[string]string{
			`{"model":"m","background":true,"stream":true}`:                   "can't be streamed",
			`{"model":"m","background":true,"store":false}`:                   "leave store out",
			`{"model":"m","background":true,"previous_response_id":"resp_0"}`: CodePrevious,
		} {
			if w := b.respond("a", body); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), words) {
				t.Errorf("%s: %d %s", body, w.Code, w.Body)
			}
		}
	})
}

// hasty is objects of a store that reports new work before its creator has an answer.
type hasty struct {
	store.Objects
	tell func(store.News)
}

func (h *hasty) Put(key string, body []byte, when store.Condition) (string, error) {
	version, err := h.Objects.Put(key, body, when)
	if rest, found := strings.CutPrefix(key, "jobs/"); found && when.Absent && err == nil {
		_, id, _ := strings.Cut(rest, "/")
		h.tell(store.News{Free: []store.Ref{{Owner: peer.Named("a"), ID: id}}})
	}
	return version, err
}

// TestToldBefore: work that the store reports before its creator's call has ended is done once, and can be cancelled.
func TestToldBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.stop()
		folder, err := store.OpenFolder(t.TempDir(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		h := &hasty{Objects: folder}
		if b.store, err = store.OpenIn(h, store.Config{}, nil); err != nil {
			t.Fatal(err)
		}
		defer b.store.Close()
		defer b.stop()
		b.start(Config{})
		h.tell = func(n store.News) {
			b.handleNews(n)
			synctest.Wait() // it is begun
		}
		b.answers(respond(time.Hour))
		id := want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"x","background":true}`)).ID
		synctest.Wait()
		if n := len(b.front.requests()); n != 1 || b.front.running != 1 {
			t.Errorf("it was begun %d times, and %d run; want one", n, b.front.running)
		}
		want[stored](b, http.StatusOK, b.do(http.MethodPost, responsesPath+"/"+id+"/cancel", "a", nil))
		synctest.Wait()
		if b.front.running != 0 {
			t.Errorf("%d run that were cancelled", b.front.running)
		}
		b.answers(echo(time.Minute))
		if o := b.ended("a", b.create("a", chats("m", 1), "24h").ID); o.Status != store.Completed || len(b.front.requests()) != 2 {
			t.Errorf("the batch is %+v after %d requests in all, want 2", o, len(b.front.requests()))
		}
	})
}

// TestBackgroundEnds: a cancelled, failed or expired background response reports that; a deleted one is gone.
func TestBackgroundEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.answers(respond(time.Hour))
		ask := func(header ...string) string {
			t.Helper()
			id := want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"x","background":true}`, header...)).ID
			synctest.Wait()
			return id
		}
		id := ask()
		for range 2 { // the second time it has ended
			if r := want[stored](b, http.StatusOK, b.do(http.MethodPost, responsesPath+"/"+id+"/cancel", "a", nil)); r.Status != "cancelled" || r.ID != id {
				t.Errorf("cancelled it is %+v", r)
			}
			synctest.Wait()
		}
		if r := b.ends("a", id); r.Status != "cancelled" || b.front.running != 0 {
			t.Errorf("after that it is %+v, %d run", r, b.front.running)
		}
		id = ask()
		want[deleted](b, http.StatusOK, b.do(http.MethodDelete, responsesPath+"/"+id, "a", nil))
		synctest.Wait()
		if w := b.do(http.MethodGet, responsesPath+"/"+id, "a", nil); w.Code != http.StatusNotFound || b.front.running != 0 {
			t.Errorf("deleted it is %d %s, %d run", w.Code, w.Body, b.front.running)
		}
		if r := b.ends("a", ask("X-Request-Timeout", "60")); r.Status != "failed" || r.Error == nil || !strings.Contains(r.Error.Message, "within 1m") {
			t.Errorf("given up it is %+v", r)
		}
		b.answers(func(w http.ResponseWriter, _ *http.Request, _ string) {
			api.WriteError(w, api.BadRequest("input", "too odd"))
		})
		if r := b.ends("a", ask()); r.Status != "failed" || r.Error == nil || r.Error.Code != "server_error" || !strings.Contains(r.Error.Message, "too odd") {
			t.Errorf("failed it is %+v", r)
		}
		url := b.later("a", `{"model":"m","n":1}`).Header().Get("Location")
		if w := b.do(http.MethodDelete, responsesPath+url[strings.LastIndex(url, "/"):], "a", nil); w.Code != http.StatusNotFound {
			t.Errorf("another request is deleted as a response: %d %s", w.Code, w.Body)
		}
	})
}

// TestStoredLines: responses of batch lines and of later requests are stored too.
func TestStoredLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.answers(respond(time.Second))
		lines := `{"custom_id":"1","method":"POST","url":"/v1/responses","body":{"model":"m","store":true,"input":"x"}}` + "\n" +
			`{"custom_id":"2","method":"POST","url":"/v1/responses","body":{"model":"m","background":true,"input":"x"}}` + "\n"
		body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/responses","completion_window":"1h"}`, b.file("a", lines))
		o := b.ended("a", want[batchObject](b, http.StatusOK, b.do(http.MethodPost, pathBatches, "a", strings.NewReader(body))).ID)
		var r stored
		if l := b.output("a", o.Output)["1"]; o.Status != store.Completed || l.Response == nil || json.Unmarshal(l.Response.Body, &r) != nil {
			t.Fatalf("the batch is %+v, the line %+v", o, l)
		}
		if got := b.ends("a", r.ID); got.ID != r.ID || !r.Store {
			t.Errorf("the line has %+v, and kept is %+v", r, got)
		}
		if l := b.output("a", o.ErrorFile)["2"]; l.Response == nil || l.Response.Status != http.StatusBadRequest {
			t.Errorf("a line in the background: %+v", l)
		}
		url := b.respond("a", `{"model":"m","store":true,"input":"x"}`, "Prefer", "respond-async").Header().Get("Location")
		if r := want[stored](b, http.StatusOK, b.answered("a", url)); b.ends("a", r.ID).ID != r.ID {
			t.Errorf("answered later: %+v", r)
		}
	})
}
