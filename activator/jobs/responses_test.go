package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

// bench is a Keeper with its own store, in front of a fake model server.
type keeperBench struct {
	t testing.TB
	*keeper
	counted map[string]int
	// answer answers the model server's requests.
	answer func(w http.ResponseWriter, r *http.Request, body string)
	asked  []string // the bodies of its requests
}

func newKeeperBench(t testing.TB, maxAnswer int, room store.Limits) *keeperBench {
	t.Helper()
	s, err := store.Open(store.Config{At: t.TempDir(), Limits: room}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b := &keeperBench{t: t, counted: map[string]int{}, answer: say("completed")}
	b.keeper = newKeeper(maxAnswer, s, slog.New(slog.DiscardHandler), func(result string) { b.counted[result]++ })
	return b
}

// responseOf returns one that reports the number of items.
func responseOf(status, body string) string {
	var asked struct{ Input json.RawMessage }
	_ = json.Unmarshal([]byte(body), &asked)
	var items []any
	_ = json.Unmarshal(asked.Input, &items)
	return fmt.Sprintf(`{"id":"resp_runtime","object":"response","status":%q,"store":false,"previous_response_id":null,"output":[{"id":"msg_r%d","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"%d items","annotations":[]}]}]}`, status, len(items), len(items))
}

// say answers with a response.
func say(status string) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000000") // another text's length
		_, _ = io.WriteString(w, responseOf(status, body))
	}
}

// streamOf returns the events of a stream, up to the last of a kind.
func streamOf(last, body string) string {
	whole := responseOf(strings.TrimPrefix(last, "response."), body)
	begun := strings.Replace(strings.Replace(whole, `"completed"`, `"in_progress"`, 1), `"output":[`, `"output":[],"was":[`, 1)
	return ": waiting\n\n" +
		"event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":" + begun + "}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"a \\\"response\\\"\"}\n\n" +
		"event: " + last + "\ndata: {\"type\":\"" + last + "\",\"sequence_number\":2,\"response\":" + whole + "}\n\n"
}

// turn serves one turn, and returns the client's answer. cut reports whether the answer was cut.
func (b *keeperBench) turn(owner, body string) (w *httptest.ResponseRecorder, cut bool) {
	b.t.Helper()
	q, asks, err := readResponseRequest([]byte(body))
	if err != nil || !asks {
		b.t.Fatalf("%s: %t, %v", body, asks, err)
	}
	w = httptest.NewRecorder()
	defer func() {
		if v := recover(); v != nil {
			cut = true
		}
	}()
	r := httptest.NewRequest(http.MethodPost, responsesPath, strings.NewReader("read already"))
	err = b.Serve(w, r, turn{responseRequest: q, Owner: owner}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil || int64(len(raw)) != r.ContentLength {
			b.t.Errorf("%d bytes of %d, %v", len(raw), r.ContentLength, err)
		}
		b.asked = append(b.asked, string(raw))
		b.answer(w, r, string(raw))
	}))
	if err != nil {
		api.WriteError(w, err)
	}
	return w, false
}

// said holds the tested parts of an answer.
type said struct {
	ID       string
	Status   string
	Store    bool
	Previous string `json:"previous_response_id"`
	Output   []struct{ Content []struct{ Text string } }
	Error    struct{ Code, Param, Message string }
}

func read(t testing.TB, w *httptest.ResponseRecorder) (s said) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatalf("%v: %d %s", err, w.Code, w.Body)
	}
	return s
}

// show returns a response.
func (b *keeperBench) show(owner, id string) (said, error) {
	w := httptest.NewRecorder()
	kept, err := b.response(owner, id)
	if err == nil {
		err = b.Show(w, kept)
	}
	if err != nil {
		return said{}, err
	}
	return read(b.t, w), nil
}

// TestConversation continues from stored responses, with another model too.
func TestConversation(t *testing.T) {
	b := newKeeperBench(t, 32<<20, store.Limits{})
	w, _ := b.turn("a", `{"model":"m","store":true,"input":"one","temperature":0}`)
	first := read(t, w)
	if first.ID == "resp_runtime" || !strings.HasPrefix(first.ID, "resp_") || !first.Store || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
		t.Errorf("the first is %+v, %v", first, w.Header())
	}
	if b.asked[0] != `{"model":"m","store":false,"input":"one","temperature":0}` {
		t.Errorf("the model server was asked %s", b.asked[0])
	}
	kept, err := b.show("a", first.ID)
	if err != nil || kept.ID != first.ID || kept.Output[0].Content[0].Text != "0 items" {
		t.Errorf("kept is %+v, %v", kept, err)
	}
	w, _ = b.turn("a", `{"model":"other","store":true,"previous_response_id":"`+first.ID+`","input":[{"role":"user","content":"two"}]}`)
	second := read(t, w)
	if second.Previous != first.ID || second.Output[0].Content[0].Text != "3 items" {
		t.Errorf("the second is %+v", second)
	}
	if want := `"input":[{"type":"message","role":"user","content":"one"},{"id":"msg_r0",`; !strings.Contains(b.asked[1], want) || strings.Contains(b.asked[1], "previous_response_id") {
		t.Errorf("the model server was asked %s", b.asked[1])
	}
	w, _ = b.turn("a", `{"model":"m","previous_response_id":"`+second.ID+`"}`)
	if third := read(t, w); third.Store || third.ID != "resp_runtime" || third.Previous != second.ID || third.Output[0].Content[0].Text != "4 items" {
		t.Errorf("the third, which is not kept, is %+v", third)
	}
	if b.counted["kept"] != 2 {
		t.Errorf("counted are %v", b.counted)
	}
	// Another owner can't see it.
	if _, err := b.show("b", first.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another owner's: %v", err)
	}
	w, _ = b.turn("b", `{"model":"m","previous_response_id":"`+first.ID+`","input":"x"}`)
	if s := read(t, w); w.Code != http.StatusBadRequest || s.Error.Code != CodePrevious || s.Error.Param != "previous_response_id" {
		t.Errorf("another owner goes on: %d %+v", w.Code, s)
	}
	// A deleted response is also missing from later ones.
	if err := b.store.Delete("a", first.ID); err != nil {
		t.Fatal(err)
	}
	w, _ = b.turn("a", `{"model":"m","previous_response_id":"`+second.ID+`","input":"x"}`)
	if s := read(t, w); w.Code != http.StatusBadRequest || s.Error.Code != CodePrevious {
		t.Errorf("what goes on from a deleted one: %d %+v", w.Code, s)
	}
	if _, err := b.show("a", second.ID); err != nil {
		t.Errorf("what goes on from a deleted one: %v", err)
	}
}

// TestItems lists a response's input, with the conversation before it.
func TestItems(t *testing.T) {
	b := newKeeperBench(t, 32<<20, store.Limits{})
	w, _ := b.turn("a", `{"store":true,"input":"one"}`)
	first := read(t, w)
	w, _ = b.turn("a", `{"store":true,"previous_response_id":"`+first.ID+`","input":[{"role":"user","content":[{"type":"input_text","text":"two"}]},{"type":"function_call_output","call_id":"c","output":"3"}]}`)
	second := read(t, w)
	list := func(id, query string) (p struct {
		Data []struct{ ID, Type, Status, Output string }
		More bool   `json:"has_more"`
		Last string `json:"last_id"`
	}) {
		t.Helper()
		w := httptest.NewRecorder()
		if err := b.Items(w, httptest.NewRequest(http.MethodGet, "/x?"+query, nil), "a", id); err != nil {
			api.WriteError(w, err)
			t.Fatalf("%s: %s", query, w.Body)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := list(second.ID, "order=asc")
	if len(all.Data) != 4 || all.More || all.Data[0].Type != "message" || all.Data[1].ID != "msg_r0" || all.Data[3].Output != "3" {
		t.Fatalf("the list is %+v", all)
	}
	var got []string
	for after, more := "", true; more; {
		p := list(second.ID, "limit=1&after="+after)
		got, after, more = append(got, p.Data[0].ID), p.Last, p.More
	}
	for n, item := range all.Data {
		if got[len(got)-1-n] != item.ID || item.ID == "" {
			t.Errorf("page by page there are %v", got)
		}
	}
	if p := list(first.ID, ""); len(p.Data) != 1 || p.Data[0].ID != all.Data[0].ID || p.Data[0].Status != "completed" {
		t.Errorf("of the first: %+v", p)
	}
	for _, query := range []string{"limit=0", "limit=101", "order=up", "after=none"} {
		var e *api.Error
		if err := b.Items(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x?"+query, nil), "a", second.ID); !errors.As(err, &e) || e.Status != http.StatusBadRequest {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// TestStream cuts a stream at each byte, and passes it on in pieces of each size: only complete responses are stored,
// and the client gets the same events.
func TestStream(t *testing.T) {
	const body = `{"store":true,"stream":true,"input":"one"}`
	b := newKeeperBench(t, 32<<20, store.Limits{})
	for last, status := range map[string]string{"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"} {
		text := streamOf(last, body)
		for _, ends := range []string{"\n", "\r\n", "\r"} {
			text := strings.ReplaceAll(text, "\n", ends)
			for size := 1; size < len(text); size += 1 + size/3 {
				b.answer = pieces(text, size, false)
				w, _ := b.turn("a", body)
				got := w.Body.String()
				if !w.Flushed || strings.Count(got, `"id":"resp_`) != 2 || strings.Contains(got, "resp_runtime") || !strings.HasPrefix(got, ": waiting") {
					t.Fatalf("%s in pieces of %d:\n%s", last, size, got)
				}
				_, id, _ := strings.Cut(got, `"id":"`)
				id, _, _ = strings.Cut(id, `"`)
				if kept, err := b.show("a", id); err != nil || kept.Status != status || !kept.Store {
					t.Fatalf("%s in pieces of %d: kept is %+v, %v", last, size, kept, err)
				}
			}
		}
	}
	text := streamOf("response.completed", body)
	end := strings.LastIndex(text, "event: ")
	b = newKeeperBench(t, 32<<20, store.Limits{})
	for n := range end + 40 {
		for _, abort := range []bool{true, false} {
			b.answer = pieces(text[:n], 7, abort)
			w, cut := b.turn("a", body)
			if cut != abort || strings.Contains(w.Body.String(), "response.completed\"") {
				t.Fatalf("cut at %d of %d:\n%s", n, len(text), w.Body)
			}
		}
	}
	if b.store.Bytes() != 0 || b.counted["kept"] != 0 {
		t.Errorf("of streams that were cut %d bytes are kept, %v", b.store.Bytes(), b.counted)
	}
}

// pieces answers with a stream in pieces, and aborts the connection at its end.
func pieces(text string, size int, abort bool) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			rest = rest[n:]
		}
		if abort {
			panic(http.ErrAbortHandler)
		}
	}
}

// TestFull: if the store is full, the model is not asked; if it is full at the end, the client is not told that the
// response is stored.
func TestFull(t *testing.T) {
	b := newKeeperBench(t, 32<<20, store.Limits{MaxRecords: 1})
	b.turn("a", `{"store":true,"input":"one"}`)
	w, _ := b.turn("a", `{"store":true,"input":"two"}`)
	if s := read(t, w); !strings.Contains(s.Error.Message, "it may have 1 files") || len(b.asked) != 1 {
		t.Errorf("one more than there may be: %d %+v, asked %d times", w.Code, s, len(b.asked))
	}
	b = newKeeperBench(t, 32<<20, store.Limits{MaxBytes: 200 << 10, Shared: "a"})
	long := strings.Repeat("x", 220<<10)
	b.answer = func(w http.ResponseWriter, r *http.Request, body string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.Replace(responseOf("completed", body), "items", long, 1))
	}
	w, _ = b.turn("a", `{"store":true,"input":"one"}`)
	if s := read(t, w); w.Code != http.StatusInsufficientStorage || s.Error.Code != "storage_full" || !strings.Contains(s.Error.Message, "not stored: the store is full: all files and records together may take") || strings.Contains(w.Body.String(), "xxx") {
		t.Errorf("an answer that does not fit: %d %.300s", w.Code, w.Body)
	}
	b.answer = pieces(strings.ReplaceAll(streamOf("response.completed", "{}"), "items", long), 1000, false)
	w, _ = b.turn("a", `{"store":true,"stream":true,"input":"one"}`)
	if got := w.Body.String(); strings.Contains(got, "response.completed\"") || !strings.Contains(got, `"sequence_number":2`) || !strings.Contains(got, "storage_full") {
		t.Errorf("a stream that does not fit ends with %s", got[max(0, len(got)-500):])
	}
	if b.store.Bytes() != 0 || b.counted["failed"] != 2 {
		t.Errorf("%d bytes are kept, %v", b.store.Bytes(), b.counted)
	}
}

// TestWrongAnswers: an incomplete response is not stored, and an error is passed on unchanged.
func TestWrongAnswers(t *testing.T) {
	b := newKeeperBench(t, 4000, store.Limits{})
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, string)
		status int
		want   string
	}{
		"an error": {func(w http.ResponseWriter, _ *http.Request, _ string) {
			api.WriteError(w, api.Errorf(http.StatusTooManyRequests, "busy", "no").WithRetryAfter(time.Second))
		}, http.StatusTooManyRequests, `"busy"`},
		"no JSON":   {func(w http.ResponseWriter, _ *http.Request, _ string) { _, _ = io.WriteString(w, "hello") }, http.StatusBadGateway, "no response"},
		"nothing":   {func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusNoContent) }, http.StatusBadGateway, "no response"},
		"not ended": {say("queued"), http.StatusBadGateway, `queued`},
		"too large": {func(w http.ResponseWriter, _ *http.Request, _ string) {
			for range 10 {
				_, _ = io.WriteString(w, strings.Repeat(" ", 1000))
			}
		}, http.StatusBadGateway, "answer_too_large"},
		"an event that is too large": {pieces("data: "+strings.Repeat("x", 9000), 500, false), http.StatusOK, "answer_too_large"},
	} {
		b.answer = tc.answer
		if w, cut := b.turn("a", `{"store":true,"input":"one"}`); w.Code != tc.status || cut || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: got %d %.300s", name, w.Code, w.Body)
		}
	}
	if b.store.Bytes() != 0 {
		t.Errorf("%d bytes are kept", b.store.Bytes())
	}
}

// TestRead: invalid fields are named, and requests without any of the fields are passed through.
func TestRead(t *testing.T) {
	for body, want := range map[string]string{
		`{"input":"x"}`: "", `{"store":false,"previous_response_id":null,"background":false}`: "", `no JSON`: "", `[]`: "", `{"store":null}`: "",
		`{"store":"yes"}`: "store is", `{"store":true,"store":false}`: "twice", `{"Store":true}`: "not store", `{"previous_response_id":5}`: "the id of a response", `{"previous_response_id":""}`: `is "": want the id of a response`,
		`{"background":true,"store":false}`: "leave store out",
	} {
		_, asks, err := readResponseRequest([]byte(body))
		if asks || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %t, %v; want %q", body, asks, err, want)
		}
	}
	b := newKeeperBench(t, 32<<20, store.Limits{})
	b.maxTurns = 2
	if w, _ := b.turn("a", `{"store":true,"input":5}`); w.Code != http.StatusBadRequest {
		t.Errorf("an input that is a number: %d %s", w.Code, w.Body)
	}
	previous := ""
	for n := range 4 {
		w, _ := b.turn("a", `{"store":true,"input":"x"`+previous+`}`)
		if (w.Code == http.StatusOK) != (n < 3) {
			t.Errorf("turn %d: %d %s", n, w.Code, w.Body)
		}
		previous = `,"previous_response_id":"` + read(t, w).ID + `"`
	}
}

// FuzzStream: for any pieces, only complete responses are stored, and the same bytes give the same events.
func FuzzStream(f *testing.F) {
	f.Add(streamOf("response.completed", "{}"), 5)
	f.Add(strings.ReplaceAll(streamOf("response.failed", "{}"), "\n", "\r\n"), 3)
	f.Add("data: {\"type\":\"response.completed\",\ndata: \"response\":{\"output\":[],\"status\":\"completed\"}}\n\n", 1)
	f.Add("event: response.output_text.delta\nevent: response.completed", 1) // two names
	f.Add("event: response.completed\nevent: response.output_text.delta\ndata: {}\n\n", 7)
	f.Add("data: {\"a\":\ndata: {\"type\":\"response.completed\"}}\n\n", 9)
	f.Add("data: {\"error\":\"full\"}\n\ndata: [DONE]\n\n", 4)
	b := newKeeperBench(f, 32<<20, store.Limits{})
	f.Fuzz(func(t *testing.T, text string, size int) {
		b.t = t
		kept := b.counted["kept"]
		b.answer = pieces(text, max(1, size%200), false)
		w, _ := b.turn("a", `{"store":true,"stream":true,"input":"x"}`)
		n := b.counted["kept"] - kept
		if named := strings.Contains(text, "response.") || strings.Contains(text, `\u`); n > 1 || n == 1 && !named {
			t.Errorf("%q: %d responses are kept", text, n)
		}
		judge := relay.NewJudge(api.StreamResponses)
		judge.See(w.Body.Bytes())
		if judge.Whole(false) && n == 0 && !strings.Contains(w.Body.String(), `"error"`) {
			t.Errorf("%q is told as whole, and not kept", text)
		}
	})
}
