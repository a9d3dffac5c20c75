package jobs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api"
)

// TestCompletes: each line gets its answer, or its error; their tokens are summed.
func TestCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.front.bad["none"] = api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no such model")
		lines := chats("m", 5) + "\n" + strings.ReplaceAll(chats("none", 1), "c0", "lost")
		o := b.create("a", lines, "24h")
		if o.Status != store.Validating || o.Counts.Total != 0 || o.Metadata["k"] != "v" || o.Expires-o.Created != 24*3600 {
			t.Errorf("created %+v", o)
		}
		o = b.ended("a", o.ID)
		if o.Status != store.Completed || o.Counts != (counts{6, 5, 1}) || o.InProgress == nil || o.Finalizing == nil || o.Completed == nil || o.Failed != nil || o.Model != "" {
			t.Errorf("ended %+v", o)
		}
		if o.Usage.Input != 15 || o.Usage.Output != 10 || o.Usage.Total != 25 {
			t.Errorf("it took %+v", o.Usage)
		}
		out := b.output("a", o.Output)
		for k := range 5 {
			l := out[fmt.Sprint("c", k)]
			if l.Response == nil || l.Error != nil || l.Response.Status != 200 || !strings.Contains(string(l.Response.Body), fmt.Sprintf(`"n":%d`, k)) || l.Response.Request == "" {
				t.Errorf("line %d is %+v", k, l)
			}
		}
		lost := b.output("a", o.ErrorFile)["lost"]
		if len(out) != 5 || lost.Response == nil || lost.Response.Status != 404 || !strings.Contains(string(lost.Response.Body), `"code":"model_not_found"`) {
			t.Errorf("%d answers; the error is %+v", len(out), lost)
		}
		for _, q := range b.front.requests() {
			if q.caller.Account != "key a" || !strings.HasPrefix(q.id, "batch_req_") {
				t.Errorf("a line came as %+v", q)
			}
		}
		list := want[activator.Page[fileObject]](b, http.StatusOK, b.do(http.MethodGet, pathFiles+"?purpose=batch_output", "a", nil))
		if len(list.Data) != 2 || list.Data[0].Bytes == 0 {
			t.Errorf("its files are %+v", list)
		}
	})
}

// TestBodiesInLines checks that an answer, whatever a model server has sent, is one line of JSON in UTF-8 in a file of results.
func TestBodiesInLines(t *testing.T) {
	for body, want := range map[string]string{
		"{\n \"a\": 1.50\n}":             `{"a":1.50}`,
		"{\"a\":\"b\xff\xfe\"}":          `{"a":"b\ufffd"}`,
		"a\nb\xff":                       `"a\nb\ufffd"`,
		`{"a":1}{"a":1}`:                 `"{\"a\":1}{\"a\":1}"`,
		"":                               `""`,
		"{\"a\":\"\u0085\u2028\u2029\"}": `{"a":"\u0085\u2028\u2029"}`,
	} {
		got := string(text(messageResult{"c", raw([]byte(body))}))
		want = `{"custom_id":"c","result":` + strings.ReplaceAll(want, `\ufffd`, "\ufffd") + "}\n"
		if strings.ReplaceAll(got, `\ufffd`, "\ufffd") != want {
			t.Errorf("%q is %q, want %q", body, got, want)
		}
	}
}

// TestWaitsUntilDue: while no instance is awake nothing is sent, until the lines need the remaining time; then they
// are ordinary demand.
func TestWaitsUntilDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.front.set("m", activator.Room{Slots: 4, Wake: time.Minute})
		o := b.create("a", chats("m", 8), "10h")
		synctest.Wait()
		began := time.Now()
		time.Sleep(8 * time.Hour)
		if n := len(b.front.requests()); n != 0 {
			t.Fatalf("%d lines were sent to a model that sleeps", n)
		}
		o = b.ended("a", o.ID)
		seen := b.front.requests()
		// two rounds of the usual time of a line, twice, a wake, and a tenth of the window
		want := 10*time.Hour - 2*2*usualLine - time.Minute - time.Hour
		if first := seen[0].at.Sub(began); first < want-time.Second || first > want+time.Second {
			t.Errorf("the first line was sent after %s, want %s", first, want)
		}
		for _, q := range seen {
			if q.terms.Background {
				t.Errorf("a line that is due was sent in the background")
			}
		}
		if o.Status != store.Completed || o.Counts.Completed != 8 || b.front.most > 4 {
			t.Errorf("it is %s with %+v, %d lines at once", o.Status, o.Counts, b.front.most)
		}
	})
}

// TestFillsWhatIsAwake: lines are sent in the background, to all free slots but one, and stop when the instances
// sleep.
func TestFillsWhatIsAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		o := b.create("a", chats("m", 100), "10h")
		time.Sleep(4500 * time.Millisecond) // four rounds of a second each
		b.front.set("m", activator.Room{Slots: 4, Wake: time.Second})
		time.Sleep(time.Hour)
		seen := len(b.front.requests())
		if got := b.show("a", o.ID).Counts.Completed; got != seen || got < 12 || got > 16 {
			t.Errorf("%d were sent and %d answered while there were slots for 12 to 16", seen, got)
		}
		if b.front.most > 3 {
			t.Errorf("%d at once, want 3 of 4 slots", b.front.most)
		}
		b.front.set("m", activator.Room{Slots: 4, Free: 4})
		o = b.ended("a", o.ID)
		for _, q := range b.front.requests() {
			if !q.terms.Background {
				t.Error("a line was ordinary demand before it was due")
			}
		}
		if o.Counts.Completed != 100 || len(b.front.requests()) != 100 {
			t.Errorf("%+v after %d requests", o.Counts, len(b.front.requests()))
		}
	})
}

// TestShare: two batches for one model get equal shares, though one came first.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.front.set("m", activator.Room{Slots: 9, Free: 9})
		first := b.create("a", chats("m", 400), "10h")
		time.Sleep(2 * time.Second)
		second := b.create("b", chats("m", 400), "10h")
		time.Sleep(10 * time.Second)
		before := b.show("a", first.ID).Counts.Completed
		mine := b.show("b", second.ID).Counts.Completed
		time.Sleep(40 * time.Second)
		n, m := b.show("a", first.ID).Counts.Completed-before, b.show("b", second.ID).Counts.Completed-mine
		if n < 140 || m < 140 || n+m < 300 {
			t.Errorf("in 40 s the first has %d lines and the second %d, want 160 of each", n, m)
		}
	})
}

// TestExpires: a line that is not answered in time has that as its error.
func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.front.answer = func(w http.ResponseWriter, r *http.Request, body string) {
			if strings.Contains(body, `"n":2`) {
				echo(0)(w, r, body)
				return
			}
			if strings.Contains(body, `"n":3`) {
				<-r.Context().Done()
				api.WriteError(w, context.Cause(r.Context()))
				return
			}
			api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "no room").WithRetryAfter(time.Second))
		}
		o := b.create("a", chats("m", 5), "2m")
		o = b.ended("a", o.ID)
		if o.Status != store.Expired || o.Expired == nil || o.Counts != (counts{5, 1, 4}) || *o.Expired-o.Created > 121 {
			t.Errorf("ended %+v", o)
		}
		if out := b.output("a", o.Output); len(out) != 1 || out["c2"].Response == nil {
			t.Errorf("answered: %+v", out)
		}
		errs := b.output("a", o.ErrorFile)
		for _, id := range []string{"c0", "c1", "c3", "c4"} {
			if l := errs[id]; l.Error == nil || l.Error.Code != "batch_expired" || l.Response != nil {
				t.Errorf("%s is %+v", id, l)
			}
		}
	})
}

// TestCancel: a cancellation ends running lines, and keeps finished ones.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		var left atomic.Int32
		b.front.answer = func(w http.ResponseWriter, r *http.Request, body string) {
			if strings.Contains(body, `"n":0`) {
				echo(0)(w, r, body)
				return
			}
			<-r.Context().Done()
			left.Add(1)
			api.WriteError(w, context.Cause(r.Context()))
		}
		o := b.create("a", chats("m", 9), "24h")
		time.Sleep(time.Second)
		running := len(b.front.requests()) - 1
		if w := b.do(http.MethodPost, pathBatches+"/"+o.ID+"/cancel", "b", nil); w.Code != http.StatusNotFound {
			t.Errorf("another tenant's cancel: %d %s", w.Code, w.Body)
		}
		o = want[batchObject](b, http.StatusOK, b.do(http.MethodPost, pathBatches+"/"+o.ID+"/cancel", "a", nil))
		if o.Status != store.Cancelling || o.Cancelling == nil {
			t.Errorf("cancelled: %+v", o)
		}
		o = b.ended("a", o.ID)
		if o.Status != store.Cancelled || o.Cancelled == nil || o.Counts != (counts{9, 1, 8}) || int(left.Load()) != running {
			t.Errorf("ended %+v; %d of %d running requests were ended", o, left.Load(), running)
		}
		if l := b.output("a", o.ErrorFile)["c5"]; l.Error == nil || l.Error.Code != "batch_cancelled" {
			t.Errorf("a line that was not sent: %+v", l)
		}
		if w := b.do(http.MethodPost, pathBatches+"/"+o.ID+"/cancel", "a", nil); w.Code != http.StatusConflict {
			t.Errorf("cancel what has ended: %d %s", w.Code, w.Body)
		}
	})
}

// TestGoesOn: if a server ends in the middle, the next one does the rest: no line is answered twice or lost.
func TestGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		o := b.create("a", chats("m", 40), "24h")
		for range 3 {
			time.Sleep(3300 * time.Millisecond)
			b.stop()
			b.start(Config{})
		}
		waits := b.create("a", chats("m", 1), "24h")
		b.stop()
		if w := b.do(http.MethodPost, pathBatches+"/"+waits.ID+"/cancel", "a", nil); w.Code != http.StatusOK {
			t.Errorf("cancel while no server runs: %d", w.Code)
		}
		b.start(Config{})
		o = b.ended("a", o.ID)
		if out := b.output("a", o.Output); len(out) != 40 || o.Counts != (counts{40, 40, 0}) || o.Status != store.Completed {
			t.Errorf("%d answers, %+v", len(out), o)
		}
		if got := b.ended("a", waits.ID); got.Status != store.Cancelled {
			t.Errorf("the other is %s", got.Status)
		}
	})
}

// TestSentAgain: a refused line is sent again while there is time; one that an instance fails at, three times.
func TestSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		var refusals, failures atomic.Int32
		b.front.answer = func(w http.ResponseWriter, r *http.Request, body string) {
			switch {
			case strings.Contains(body, `"n":0`) && refusals.Add(1) <= 20:
				api.WriteError(w, api.Errorf(http.StatusTooManyRequests, keys.CodeRateLimit, "slower").WithRetryAfter(20*time.Second))
			case strings.Contains(body, `"n":1`):
				failures.Add(1)
				api.WriteError(w, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "it fell over"))
			case strings.Contains(body, `"n":2`):
				_, _ = w.Write([]byte("half an ans"))
				panic(http.ErrAbortHandler)
			case strings.Contains(body, `"n":3`):
				_, _ = w.Write(make([]byte, 33<<20))
			default:
				echo(0)(w, r, body)
			}
		}
		o := b.create("a", chats("m", 5), "24h")
		o = b.ended("a", o.ID)
		if o.Counts != (counts{5, 2, 3}) || failures.Load() != 3 {
			t.Errorf("%+v after %d failures, want three", o.Counts, failures.Load())
		}
		errs := b.output("a", o.ErrorFile)
		if l := errs["c1"]; l.Response == nil || l.Response.Status != http.StatusBadGateway {
			t.Errorf("what fell over: %+v", l)
		}
		if l := errs["c2"]; l.Error == nil || l.Error.Code != "stream_cut" {
			t.Errorf("what was cut: %+v", l)
		}
		if l := errs["c3"]; l.Error == nil || l.Error.Code != "answer_too_large" {
			t.Errorf("what was too large: %+v", l)
		}
	})
}

// TestRevoked: the rest of a batch with a revoked key fails with that error, at once.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		o := b.create("a", chats("m", 200), "24h")
		time.Sleep(5 * time.Second)
		b.front.mu.Lock()
		b.front.bad["m"] = api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the key of this request was revoked")
		b.front.mu.Unlock()
		began := time.Now()
		o = b.ended("a", o.ID)
		if o.Status != store.Completed || o.Counts.Completed == 0 || o.Counts.Completed+o.Counts.Failed != 200 || time.Since(began) > time.Minute {
			t.Errorf("after %s: %+v", time.Since(began), o)
		}
		if l := b.output("a", o.ErrorFile)["c199"]; l.Response == nil || l.Response.Status != http.StatusUnauthorized || !strings.Contains(string(l.Response.Body), "revoked") {
			t.Errorf("the last line: %+v", l)
		}
	})
}

// TestTenants: other tenants' data does not exist for a tenant.
func TestTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		o := b.ended("a", b.create("a", chats("m", 1), "24h").ID)
		for _, path := range []string{pathFiles + "/" + o.Input, pathFiles + "/" + *o.Output + "/content", pathBatches + "/" + o.ID} {
			for _, tenant := range []string{"b", ""} {
				if w := b.do(http.MethodGet, path, tenant, nil); w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "tenant a") {
					t.Errorf("GET %s as %q: %d %s", path, tenant, w.Code, w.Body)
				}
			}
			if w := b.do(http.MethodGet, path, "nobody", nil); w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("GET %s without a key: %d %s", path, w.Code, w.Body)
			}
		}
		if w := b.do(http.MethodDelete, pathFiles+"/"+o.Input, "b", nil); w.Code != http.StatusNotFound {
			t.Errorf("delete another's file: %d", w.Code)
		}
		body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, o.Input)
		if w := b.do(http.MethodPost, pathBatches, "b", strings.NewReader(body)); w.Code != http.StatusBadRequest {
			t.Errorf("a batch of another's file: %d %s", w.Code, w.Body)
		}
		for _, path := range []string{pathFiles, pathBatches} {
			if list := want[activator.Page[struct{}]](b, http.StatusOK, b.do(http.MethodGet, path, "b", nil)); len(list.Data) != 0 {
				t.Errorf("%s as b: %+v", path, list)
			}
		}
		if w := b.do(http.MethodGet, "/v1/files", "", nil, "Host", "x"); w.Code != http.StatusOK {
			t.Errorf("%d", w.Code)
		}
	})
}

// TestLittleMemory: bodies and answers stay within the memory, and all lines are answered.
func TestLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{MaxLine: 200, MaxAnswer: 1000, Memory: 1})
		b.front.set("m", activator.Room{Slots: 100, Free: 100})
		b.front.answer = func(w http.ResponseWriter, r *http.Request, body string) {
			for range 9 {
				_, _ = w.Write([]byte(strings.Repeat(" ", 100)))
				time.Sleep(time.Duration(len(body)) * time.Millisecond)
			}
			echo(0)(w, r, "1")
		}
		o := b.ended("a", b.create("a", chats("m", 30), "24h").ID)
		if o.Status != store.Completed || o.Counts.Completed != 30 {
			t.Errorf("ended %+v", o)
		}
		if b.front.most > 1 {
			t.Errorf("%d lines at once in 1,600 bytes", b.front.most)
		}
		if w := b.later("a", `{"model":"m"}`, "Prefer", "wait=60"); w.Code != http.StatusOK || len(w.Body.String()) < 900 {
			t.Errorf("a request: %d %s", w.Code, w.Body)
		}
	})
}

// TestManyBatches: batches that wait for a model don't block others, and are cancelled at once.
func TestManyBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Active: 8})
		b.front.set("asleep", activator.Room{Slots: 1})
		for range 5 {
			b.create("a", chats("asleep", 1), "24h")
		}
		last := b.create("a", chats("asleep", 1), "24h")
		if o := b.ended("b", b.create("b", chats("m", 3), "24h").ID); o.Status != store.Completed {
			t.Errorf("another tenant's batch is %s", o.Status)
		}
		if n := len(b.batches.running); n != 1 {
			t.Errorf("%d batches of one tenant run, want an eighth of 8", n)
		}
		b.do(http.MethodPost, pathBatches+"/"+last.ID+"/cancel", "a", nil)
		if o := b.ended("a", last.ID); o.Status != store.Cancelled || o.Cancelled == nil || *o.Cancelled-o.Created > 60 {
			t.Errorf("the one that waited is %+v", o)
		}
	})
}

// TestDueTogether: several batches for one model begin early enough for all of their lines.
func TestDueTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Poll: time.Second})
		b.front.set("m", activator.Room{Slots: 4})
		first, second := b.create("a", chats("m", 40), "10h"), b.create("b", chats("m", 400), "10h")
		b.create("b", chats("m", 400), "20h") // due later
		began := time.Now()
		time.Sleep(8 * time.Hour)
		o, p := b.ended("a", first.ID), b.ended("b", second.ID)
		// the second has 110 rounds of its own and of the first
		want := 9*time.Hour - 2*110*usualLine
		if at := b.front.requests()[0].at.Sub(began); at < want-2*time.Second || at > want+2*time.Second {
			t.Errorf("the first line was sent after %s, want %s", at, want)
		}
		if o.Counts.Completed != 40 || p.Counts.Completed != 400 {
			t.Errorf("ended %+v and %+v", o.Counts, p.Counts)
		}
	})
}
