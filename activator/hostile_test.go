package activator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// hostile is an instance's misbehaviour with a stream that it should resume.
type hostile struct {
	does  func(w http.ResponseWriter, r *http.Request)
	whole bool   // the stream completes if this happens once
	why   string // the error if this always happens; empty: no particular text
	at    int    // the number of events after which the stream must have been cut for it; 0: any
}

// events flushes a stream's events.
func events(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// raw answers with the raw bytes of the whole connection.
func raw(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(c, text)
		_ = c.Close()
	}
}

// answers answers with a status, a type and a body.
func answers(status int, kind, body string, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// cuts sends the rest of the stream, then text, and closes the connection.
func cuts(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		events(w, text)
		panic(http.ErrAbortHandler)
	}
}

func hostileTargets() map[string]hostile {
	const sse, js = "text/event-stream", "application/json"
	refusal := func(code string) func(http.ResponseWriter, *http.Request) {
		return answers(http.StatusServiceUnavailable, js, `{"error":{"message":"no","code":"`+code+`"}}`, control.HeaderRefused, code)
	}
	return map[string]hostile{
		"it closes":                            {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true, "failed before it answered", 0},
		"it speaks no HTTP":                    {raw("\x00\xff\x13 what\r\n\r\n"), true, "failed before it answered", 0},
		"it ends in its header":                {raw("HTTP/1.1 200 OK\r\nContent-Ty"), true, "failed before it answered", 0},
		"its header has no end":                {raw("HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 2000)), true, "failed before it answered", 0},
		"it claims a length":                   {raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9223372036854775807\r\n\r\n" + sent(2, 2) + ": x\n\n"), true, "too often", 0},
		"its runtime has failed":               {answers(http.StatusBadGateway, js, `{"error":{"message":"gone","code":"runtime_failed"}}`), true, "gone", 0},
		"it closes behind its header":          {cuts(""), true, "", 0},
		"it closes behind a comment":           {cuts(": x\n\n"), true, "too often", 0},
		"it closes behind a state":             {cuts(control.StateComment + "13,14\n"), true, "too often", 0},
		"it closes within an event":            {cuts(control.StateComment + "13,14\ndata: {\"cho"), true, "too often", 0},
		"it ends without a word":               {answers(http.StatusOK, sse, ""), true, "failed before it answered", 0},
		"it is busy":                           {refusal(api.CodeBusy), true, "took longer", 0},
		"it gives way before it begins":        {refusal(api.CodeMoved), true, "took longer", 0},
		"it gives way behind nothing":          {cuts(control.MovedComment + "\n\n"), true, "took longer", 0},
		"another model":                        {answers(http.StatusBadRequest, js, `{"error":{"message":"another model","code":"stream_cut"}}`), false, "another model", 0},
		"it fails":                             {answers(http.StatusInternalServerError, "text/html", "<html>"+strings.Repeat("x", 1<<20)), false, "", 0},
		"it answers whole":                     {answers(http.StatusOK, js, `{"choices":[{"message":{"content":"one two three"}}]}`), false, "no event stream", 0},
		"it answers what nobody reads":         {answers(http.StatusOK, sse, "\x1f\x8b\x08", "Content-Encoding", "gzip"), false, "no event stream", 0},
		"it sends elsewhere":                   {answers(http.StatusTemporaryRedirect, js, "", "Location", "http://elsewhere.example/"), false, "", 0},
		"it begins again":                      {answers(http.StatusOK, sse, whole()), false, "began again", 0},
		"it begins again, and closes":          {cuts("data: " + words[0] + "\n\n"), false, "began again", 0},
		"it begins another stream":             {answers(http.StatusOK, sse, sent(0, len(words))), false, "began again", 0},
		"it says something that is no event":   {answers(http.StatusOK, sse, strings.Repeat("\x00\xffgarbage\n\n", 99)), false, "began again", 0},
		"it says something without its end":    {answers(http.StatusOK, sse, "data: "+strings.Repeat("x", 2<<20)), false, "began again", 0},
		"it says its own error":                {answers(http.StatusOK, sse, "data: {\"error\":{\"message\":\"own\",\"code\":\"stream_cut\"}}\n\n"), false, "own", 0},
		"it tells a state that can't be said":  {cuts(control.StateComment + "13\rX-Rouse-Tenant: b\x00\ndata: " + words[2] + "\n\n"), false, "", 2},
		"it tells nothing of what it has sent": {cuts(sent(2, 3) + "data: " + words[3] + "\n\n"), false, "", 2},
	}
}

// left waits until a function has no reserved slots, and no request is being served.
func (b *bench) left(fakes ...*fakeInstance) {
	b.t.Helper()
	b.eventually("nothing is taken, and nobody works for it", func() bool {
		s, _ := b.a.Stats("default/m")
		for _, f := range fakes {
			if f.running.Load() > 0 {
				return false
			}
		}
		var all bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		return s.Running == 0 && s.Waiting == 0 && !strings.Contains(all.String(), "activator.(*call).")
	})
}

// rightly checks what the client of a stream got: its beginning, each event once and in order, then the end or one
// error.
func rightly(got string, whole bool, why string) error {
	at := 0
	for event := range strings.SplitSeq(strings.TrimSuffix(got, "\n\n"), "\n\n") {
		data, found := strings.CutPrefix(event, "data: ")
		switch {
		case !found && strings.HasPrefix(event, ": ") && !strings.HasPrefix(event, control.StateComment) && !strings.HasPrefix(event, control.MovedComment):
		case found && at < len(words) && data == words[at]:
			at++
		case found && !whole && at < len(words) && strings.Contains(data, `"error"`) && strings.Contains(data, why) && strings.HasSuffix(got, event+"\n\n"):
			at = -1
		default:
			return fmt.Errorf("event %.300q behind %d of the stream", event, at)
		}
		if at < 0 {
			return nil
		}
	}
	if !whole || at != len(words) {
		return fmt.Errorf("it ends behind %d events", at)
	}
	return nil
}

// TestHostileTargets: an instance that should resume a stream refuses, lies, hangs or dies, once or always, wherever
// the stream was cut. The client gets each event once and then the rest of the stream, or one error; the request
// counts once; and nothing of it remains.
func TestHostileTargets(t *testing.T) {
	for name, test := range hostileTargets() {
		t.Run(name, func(t *testing.T) {
			for _, behind := range []int{1, 2, 5} {
				if test.at > 0 && behind != test.at {
					continue
				}
				for _, always := range []bool{false, true} {
					m := newMetered(t)
					done := atomic.Int32{}
					m.instances.cuts = []string{sent(0, behind)}
					m.instances.goesOn = func(w http.ResponseWriter, r *http.Request) bool {
						if done.Add(1) > 1 && !always {
							return false
						}
						test.does(w, r)
						return true
					}
					header := []string{headerTimeout, "20"}  // a hanging one fails
					if always && test.why == "took longer" { // it would never end
						header = []string{headerTimeout, "0.4"}
					}
					_, got := m.post(chatPath, `{"model":"m","stream":true}`, append(header, "Authorization", "Bearer k-a")...)
					if err := rightly(got, test.whole && !always, test.why); err != nil {
						t.Errorf("cut behind event %d, always %v: %v; got %.1000q", behind, always, err, got)
					}
					m.once()
				}
			}
		})
	}
}

// TestTargetsThatHang: an instance that should resume a stream sends nothing, or nothing more. The function's limits
// end the request like any other, with one error, and the instance notices.
func TestTargetsThatHang(t *testing.T) {
	waits := func(before string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if before != "" {
				events(w, before)
			}
			<-r.Context().Done()
			return true
		}
	}
	const limit = 600 * time.Millisecond // an instance's work before it hangs takes less, however busy the machine is
	for name, test := range map[string]struct {
		does func(http.ResponseWriter, *http.Request) bool
		set  func(*api.Function)
		want int // events
		why  string
	}{
		"before it answers":      {waits(""), func(f *api.Function) { f.FirstByteTimeout = limit }, 2, "did not begin"},
		"behind a comment":       {waits(": x\n\n"), func(f *api.Function) { f.IdleTimeout = limit }, 2, "paused"},
		"behind a state":         {waits(control.StateComment + "13,14\n"), func(f *api.Function) { f.IdleTimeout = limit }, 2, "paused"},
		"behind an event":        {waits(sent(2, 3)), func(f *api.Function) { f.IdleTimeout = limit }, 3, "paused"},
		"behind its last token":  {waits(sent(2, 5)), func(f *api.Function) { f.IdleTimeout = limit }, 5, "paused"},
		"longer than may be":     {waits(sent(2, 3)), func(f *api.Function) { f.RequestTimeout = limit }, 3, "took longer"},
		"and has said it moves":  {waits(control.MovedComment + "\n\n"), func(f *api.Function) { f.IdleTimeout = limit }, 2, "paused"},
		"with a half of a piece": {waits(control.StateComment + "13,"), func(f *api.Function) { f.IdleTimeout = limit }, 2, "paused"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMetered(t)
			m.function("m", func(f *api.Function) {
				f.Runtime.Kind, f.MaxScale = api.RuntimeEngine, 2
				test.set(f)
			})
			m.instances.cuts, m.instances.goesOn = []string{sent(0, 2)}, test.does
			_, got := m.post(chatPath, `{"model":"m","stream":true}`, "Authorization", "Bearer k-a")
			if err := rightly(got, false, test.why); err != nil || strings.Count(got, `"finish_reason"`)+strings.Count(got, `"usage"`) != test.want || !strings.Contains(got, api.CodeRequestTimeout) {
				t.Errorf("%v; got %q, want %d events and a time limit", err, got, test.want)
			}
			m.once()
		})
	}
}

// TestClientLeavesInAMove: at whatever point of a move a stream's client leaves, everything ends.
func TestClientLeavesInAMove(t *testing.T) {
	for name, does := range map[string]func(w http.ResponseWriter, r *http.Request){
		"while it waits for an instance": answers(http.StatusServiceUnavailable, "application/json", `{"error":{"message":"full"}}`, control.HeaderRefused, api.CodeBusy),
		"while nothing is answered":      func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"while it is cut again and again": func(w http.ResponseWriter, _ *http.Request) {
			events(w, control.MovedComment+"\n\n")
			panic(http.ErrAbortHandler)
		},
		"in mid-answer": func(w http.ResponseWriter, r *http.Request) {
			events(w, sent(2, 3))
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cut := range []string{sent(0, 2), moves(0, 2)} {
				m := newMetered(t)
				asked := make(chan struct{}) // closed when an instance is asked to resume
				var once sync.Once
				m.instances.cuts = []string{cut}
				m.instances.goesOn = func(w http.ResponseWriter, r *http.Request) bool {
					once.Do(func() { close(asked) })
					does(w, r)
					return true
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.ts.URL+chatPath, strings.NewReader(`{"model":"m","stream":true}`))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer k-a")
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				<-asked
				leave()
				resp.Body.Close()
				m.once()
				if line := m.log.String(); !strings.Contains(line, `"status":499`) {
					t.Errorf("the access log: %s", line)
				}
			}
		})
	}
}
