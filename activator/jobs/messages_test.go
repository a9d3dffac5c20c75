package jobs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
)

// speak answers like a model server with Anthropic's API; a message that asks for an error gets one.
func speak(after time.Duration) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, body string) {
		if strings.Contains(body, "fail") {
			api.WriteErrorTo(w, r, api.BadRequest("messages", "too odd"))
			return
		}
		select {
		case <-time.After(after):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"msg_1","type":"message","asked":%s,"usage":{"input_tokens":3,"output_tokens":2}}`, body)
	}
}

// asksFor returns a batch of messages to m with these texts.
func asksFor(texts ...string) string {
	var all []string
	for k, text := range texts {
		all = append(all, fmt.Sprintf(`{"custom_id":"c%d","params":{"model":"m","max_tokens":9, "messages":[{"role":"user","content":%q}]}}`, k, text))
	}
	return `{"requests":[` + strings.Join(all, ",\n") + `]}`
}

func (b *bench) messages(tenant, body string, header ...string) messagesObject {
	b.t.Helper()
	return want[messagesObject](b, http.StatusOK, b.do(http.MethodPost, pathMessages, tenant, strings.NewReader(body), header...))
}

// messagesEnded waits until a batch has ended.
func (b *bench) messagesEnded(tenant, id string) messagesObject {
	b.t.Helper()
	for range 100_000 {
		if o := want[messagesObject](b, http.StatusOK, b.do(http.MethodGet, pathMessages+"/"+id, tenant, nil)); o.Status == "ended" {
			return o
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	b.t.Fatal("the batch does not end")
	return messagesObject{}
}

// kinds returns the types of a batch's results, by custom_id.
func (b *bench) kinds(tenant, id string) map[string]string {
	b.t.Helper()
	w := b.do(http.MethodGet, pathMessages+"/"+id+"/results", tenant, nil)
	if w.Code != http.StatusOK || fmt.Sprint(w.Body.Len()) != w.Header().Get("Content-Length") {
		b.t.Fatalf("results: %d %v %s", w.Code, w.Header(), w.Body)
	}
	out := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		var l struct {
			ID     string `json:"custom_id"`
			Result struct {
				Type    string
				Message struct {
					Asked struct{ Messages []struct{ Content string } }
				}
				Error struct {
					Type  string
					Error struct{ Type, Message string }
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || out[l.ID] != "" {
			b.t.Fatalf("%v: %s", err, line)
		}
		out[l.ID] = l.Result.Type
		if l.Result.Type == "errored" && (l.Result.Error.Type != "error" || l.Result.Error.Error.Message == "") {
			b.t.Errorf("an error is %s", line)
		}
	}
	return out
}

// TestMessages: Anthropic's batches run like others, and are listed separately.
func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.front.answer = speak(time.Second)
		made := b.messages("a", asksFor("one", "fail", "<three>"))
		if !strings.HasPrefix(made.ID, "msgbatch_") || made.Type != "message_batch" || made.Status != "in_progress" || made.Counts.Processing != 3 || made.Results != nil || made.Expires.Sub(made.Created) != 24*time.Hour {
			t.Errorf("taken in as %+v", made)
		}
		o := b.messagesEnded("a", made.ID)
		if o.Counts != (messagesCounts{Succeeded: 2, Errored: 1}) || o.Ended == nil || o.Results == nil || !strings.HasSuffix(*o.Results, "http://example.com/v1/messages/batches/"+made.ID+"/results") {
			t.Errorf("it ended as %+v", o)
		}
		if got := b.kinds("a", made.ID); len(got) != 3 || got["c0"] != "succeeded" || got["c1"] != "errored" || got["c2"] != "succeeded" {
			t.Errorf("the results are %v", got)
		}
		if got := b.front.requests(); len(got) != 3 || !slices.ContainsFunc(got, func(q seen) bool {
			return q.body == `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"<three>"}]}`
		}) || got[0].caller.Account != "key a" {
			t.Errorf("the requests were %+v", got)
		}
		if p := want[activator.Page[fileObject]](b, http.StatusOK, b.do(http.MethodGet, pathFiles, "a", nil)); len(p.Data) != 0 {
			t.Errorf("among the files are %+v", p.Data)
		}
		if p := want[activator.Page[batchObject]](b, http.StatusOK, b.do(http.MethodGet, pathBatches, "a", nil)); len(p.Data) != 0 {
			t.Errorf("among OpenAI's batches are %+v", p.Data)
		}
		other := b.create("a", chats("m", 1), "24h")
		for _, path := range []string{pathBatches + "/" + made.ID, pathMessages + "/" + other.ID, pathMessages + "/" + other.ID + "/results"} {
			if w := b.do(http.MethodGet, path, "a", nil); w.Code != http.StatusNotFound {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		for _, path := range []string{"", "/results"} {
			if w := b.do(http.MethodGet, pathMessages+"/"+made.ID+path, "b", nil); w.Code != http.StatusNotFound || !strings.HasPrefix(w.Body.String(), `{"type":"error","error":{"type":"not_found_error"`) {
				t.Errorf("another tenant's: %d %s", w.Code, w.Body)
			}
		}
		if w := b.do(http.MethodDelete, pathMessages+"/"+made.ID, "b", nil); w.Code != http.StatusNotFound {
			t.Errorf("another tenant deletes it: %d %s", w.Code, w.Body)
		}
		b.ended("a", other.ID)
		if d := want[map[string]string](b, http.StatusOK, b.do(http.MethodDelete, pathMessages+"/"+made.ID, "a", nil)); d["type"] != "message_batch_deleted" {
			t.Errorf("deleted: %v", d)
		}
		files, _, err := b.store.Files(peer.Named("a"), "", store.Query{Limit: 100})
		if w := b.do(http.MethodGet, pathMessages+"/"+made.ID, "a", nil); w.Code != http.StatusNotFound || err != nil {
			t.Errorf("after that: %d, %v", w.Code, err)
		}
		for _, f := range files {
			if err := b.store.DeleteFile(peer.Named("a"), f.ID); err != nil {
				t.Error(err)
			}
		}
		if n := b.store.Bytes(); n != 64<<10 { // the other batch
			t.Errorf("%d bytes are left", n)
		}
	})
}

// TestMessagesEnd: each request of a cancelled or expired batch reports that; a server that ends in between loses
// none.
func TestMessagesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.front.answer = speak(time.Minute)
		texts := make([]string, 20)
		made := b.messages("a", asksFor(texts...))
		time.Sleep(90 * time.Second) // three slots less the reserve
		if w := b.do(http.MethodDelete, pathMessages+"/"+made.ID, "a", nil); w.Code != http.StatusConflict {
			t.Errorf("deleted while it runs: %d %s", w.Code, w.Body)
		}
		if w := b.do(http.MethodGet, pathMessages+"/"+made.ID+"/results", "a", nil); w.Code != http.StatusNotFound {
			t.Errorf("results while it runs: %d %s", w.Code, w.Body)
		}
		b.stop()
		b.start(Config{})
		if o := want[messagesObject](b, http.StatusOK, b.do(http.MethodPost, pathMessages+"/"+made.ID+"/cancel", "a", nil)); o.Status != "canceling" || o.Cancel == nil {
			t.Errorf("cancelled it is %+v", o)
		}
		o := b.messagesEnded("a", made.ID)
		counted := map[string]int{}
		for _, kind := range b.kinds("a", made.ID) {
			counted[kind]++
		}
		if o.Counts.Succeeded != 3 || o.Counts.Cancelled != 17 || counted["succeeded"] != 3 || counted["canceled"] != 17 {
			t.Errorf("it ended as %+v with %v", o, counted)
		}
		if w := b.do(http.MethodPost, pathMessages+"/"+made.ID+"/cancel", "a", nil); w.Code != http.StatusConflict {
			t.Errorf("cancelled again: %d %s", w.Code, w.Body)
		}
		b.front.set("m", activator.Room{Slots: 4}) // nothing is free
		b.front.answer = speak(time.Hour)
		o = b.messagesEnded("a", b.messages("a", asksFor(texts...), "X-Request-Timeout", "2m").ID)
		if o.Counts != (messagesCounts{Expired: 20}) {
			t.Errorf("without room in time it ended as %+v", o)
		}
		var ids []string
		for range 3 {
			ids = append([]string{b.messages("a", asksFor("x")).ID}, ids...)
		}
		list := func(query string) (p activator.Page[messagesObject], got string) {
			p = want[activator.Page[messagesObject]](b, http.StatusOK, b.do(http.MethodGet, pathMessages+"?"+query, "a", nil))
			for _, o := range p.Data {
				got += fmt.Sprint(slices.Index(ids, o.ID), " ")
			}
			return p, got
		}
		if p, got := list("limit=2"); got != "0 1 " || !p.More || *p.Last != ids[1] {
			t.Errorf("the newest are %s, %+v", got, p)
		}
		if _, got := list("limit=1&after_id=" + ids[1]); got != "2 " {
			t.Errorf("after the second are %s", got)
		}
		if _, got := list("before_id=" + ids[2]); got != "0 1 " {
			t.Errorf("before the third are %s", got)
		}
	})
}

// TestMessagesRefused: an invalid batch is refused before any of it is stored.
func TestMessagesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{MaxLines: 3, MaxLine: 2000, MaxFile: 20_000, MaxBatches: 1})
		ok := asksFor("x")
		for name, tc := range map[string]struct {
			body   string
			status int
			want   string
		}{
			"nothing":          {``, 400, "too early"},
			"cut":              {ok[:60], 400, "too early"},
			"no JSON":          {`hello`, 400, "it is not JSON"},
			"an array":         {`[]`, 400, "in the place of {"},
			"no requests":      {`{}`, 400, "in the place of requests"},
			"none":             {`{"requests":[]}`, 400, "no requests"},
			"more behind":      {ok + " 1", 400, "behind its end"},
			"null":             {`{"requests":null}`, 400, "in the place of ["},
			"another field":    {`{"requests":[],"model":"m"}`, 400, "model"},
			"twice":            {`{"requests":[],"requests":[]}`, 400, "requests"},
			"numbers":          {`{"requests":[5]}`, 400, "it is a JSON number: want an object"},
			"no id":            {`{"requests":[{"params":{"model":"m"}}]}`, 400, "requests.0.custom_id"},
			"an id that isn't": {`{"requests":[{"custom_id":"a b","params":{"model":"m"}}]}`, 400, "requests.0.custom_id"},
			"the same id":      {`{"requests":[{"custom_id":"a","params":{"model":"m"}},{"custom_id":"a","params":{"model":"m"}}]}`, 400, "requests.1"},
			"no params":        {`{"requests":[{"custom_id":"a"}]}`, 400, "requests.0.params"},
			"no model":         {`{"requests":[{"custom_id":"a","params":{}}]}`, 400, "model is missing"},
			"a stream":         {`{"requests":[{"custom_id":"a","params":{"model":"m","stream":true}}]}`, 400, "stream"},
			"too many":         {asksFor("1", "2", "3", "4"), 400, "more than 3"},
			"a long one":       {asksFor(strings.Repeat("x", 1950)), 400, "at most"},
			"a longer one":     {asksFor(strings.Repeat("x", 9000)), 400, "too long"},
			"too large":        {asksFor(strings.Repeat("x", 30_000)), 413, "larger"},
		} {
			w := b.do(http.MethodPost, pathMessages, "a", strings.NewReader(tc.body))
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) || !strings.HasPrefix(w.Body.String(), `{"type":"error"`) {
				t.Errorf("%s: %d %s, want %d and %q", name, w.Code, w.Body, tc.status, tc.want)
			}
			if n := b.store.Bytes(); n != 0 {
				t.Fatalf("%s: %d bytes are left", name, n)
			}
		}
		b.front.set("m", activator.Room{Slots: 4})
		b.messages("a", ok)
		before := b.store.Bytes()
		if w := b.do(http.MethodPost, pathMessages, "a", strings.NewReader(ok)); w.Code != http.StatusTooManyRequests || b.store.Bytes() != before {
			t.Errorf("one more than there may be: %d %s, %d bytes and then %d", w.Code, w.Body, before, b.store.Bytes())
		}
		if w := b.do(http.MethodGet, pathMessages, "nobody", nil); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `"type":"authentication_error"`) {
			t.Errorf("without a key: %d %s", w.Code, w.Body)
		}
	})
}

// FuzzMessages: any accepted request is valid when the batch runs.
func FuzzMessages(f *testing.F) {
	f.Add(asksFor("a", "b"))
	f.Add(`{"requests":[{"custom_id":"a","params":{"model":"m","x":"\ud800\n"}}]} x`)
	s := &Server{cfg: Config{MaxLine: 4000, MaxLines: 10, MaxModels: 3}}
	f.Fuzz(func(t *testing.T, body string) {
		var out strings.Builder
		n, err := s.readMessages(strings.NewReader(body), &out)
		if err != nil {
			return
		}
		in, faults, err := check(strings.NewReader(out.String()), endpointMessages, s.cfg)
		if err != nil || len(faults) > 0 || len(in.lines) != n {
			t.Errorf("%q became %q: %d lines of %d, %v, %v", body, out.String(), len(in.lines), n, faults, err)
		}
	})
}

// TestAnthropicFiles: clients of Anthropic's files API are told, in their format, that it is not served.
func TestAnthropicFiles(t *testing.T) {
	b := newBench(t, Config{})
	for _, asks := range [][2]string{{"GET", "/v1/files"}, {"POST", "/v1/files"}, {"GET", "/v1/files/x"}} {
		if w := b.do(asks[0], asks[1], "a", strings.NewReader("x"), "Anthropic-Beta", "other-2025-01-01,files-api-2025-04-14"); w.Code != 404 ||
			!strings.HasPrefix(w.Body.String(), `{"type":"error","error":{"type":"not_found_error","message":"Anthropic's files API is not served`) {
			t.Errorf("%s: got %d %s", asks, w.Code, w.Body)
		}
	}
	if w := b.do("GET", "/v1/files", "a", nil, "Anthropic-Beta", "other-2025-01-01"); w.Code != 200 {
		t.Errorf("another beta: got %d %s", w.Code, w.Body)
	}
}
