package activator

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// words are the events of a whole stream, and their states.
var (
	words = []string{
		`{"choices":[{"delta":{"role":"assistant","content":"one"},"finish_reason":null}]}`,
		`{"choices":[{"delta":{"content":" two"},"finish_reason":null}]}`,
		`{"choices":[{"delta":{"content":" three"},"finish_reason":null}]}`,
		`{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4}}`,
		`[DONE]`,
	}
	wordStates = []string{"id:1::0:11", "12", "13,14", "15", "u", ""}
)

// whole returns the stream that a client gets.
func whole() string { return "data: " + strings.Join(words, "\n\ndata: ") + "\n\n" }

// resumable is an instance that resumes streams, and cuts its own as configured.
type resumable struct {
	mu     sync.Mutex // guards the fields below
	cuts   []string   // of the next answers: the part sent before the connection ends, "" for a whole answer
	states []string   // the received headers

	before   func()                                        // called before an answer is cut; nil: not called
	goesOn   func(http.ResponseWriter, *http.Request) bool // answers a resumption, unless it returns false; nil: not called
	encoding string                                        // the Content-Encoding of answers
	fakes    []*fakeInstance
}

// sent returns the events [from, n) as an instance sends them.
func sent(from, n int) string {
	var b strings.Builder
	for i := from; i < n; i++ {
		if wordStates[i] != "" {
			b.WriteString(control.StateComment + wordStates[i] + "\n")
		}
		b.WriteString("data: " + words[i] + "\n\n")
	}
	return b.String()
}

func (f *resumable) chat(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	f.mu.Lock()
	state := r.Header.Get(control.HeaderState)
	f.states = append(f.states, state)
	cut := ""
	if len(f.cuts) > 0 {
		cut, f.cuts = f.cuts[0], f.cuts[1:]
	}
	f.mu.Unlock()
	if f.goesOn != nil && state != "" && state != control.StateNew && f.goesOn(w, r) {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if f.encoding != "" {
		w.Header().Set("Content-Encoding", f.encoding)
	}
	if cut != "" {
		if f.before != nil {
			f.before()
		}
		_, _ = io.WriteString(w, cut)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	from := 0
	if state != "" && state != control.StateNew {
		from = strings.Count(state, ";") + 1
	}
	out := sent(from, len(words))
	if state == "" {
		out = whole()
	}
	_, _ = io.WriteString(w, out)
}

// streamed declares a function of a runtime with two instances that answer alike.
func streamed(b *bench, name, kind string, change func(*api.Function)) *resumable {
	f := &resumable{}
	fn := b.function(name, func(s *api.Function) {
		s.Runtime.Kind, s.MaxScale = kind, 2
		if change != nil {
			change(s)
		}
	})
	for i := range 2 {
		i := b.instance(fn, name+"-"+strconv.Itoa(i), api.Awake)
		i.chat = f.chat
		f.fakes = append(f.fakes, i)
	}
	return f
}

// TestStreamsGoOnElsewhere cuts a stream at each of its bytes: the client gets each event once, whole and in order,
// without the state.
func TestStreamsGoOnElsewhere(t *testing.T) {
	b := startBench(t, nil)
	f := streamed(b, "m", api.RuntimeEngine, nil)
	all := sent(0, len(words))
	for at := 1; at < len(all)-1; at++ { // without its last byte it is whole
		f.mu.Lock()
		f.cuts, f.states = []string{all[:at]}, nil
		f.mu.Unlock()
		resp, got := b.post(chatPath, `{"model":"m","stream":true}`)
		if resp.StatusCode != http.StatusOK || got != whole() {
			t.Fatalf("cut behind byte %d, %q: got %s %q", at, all[:at], resp.Status, got)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.states) == 0 || f.states[0] != control.StateNew {
		t.Errorf("the first instance was told %q", f.states)
	}
}

// TestStreamsThatDoNotGoOn: a stream is not resumed if the client opts out, with other runtimes, too often, or
// without a state. It then ends with the usual error event.
func TestStreamsThatDoNotGoOn(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	b := startBench(t, nil, func(d *Deps) { d.Access = slog.New(slog.NewJSONHandler(&lockedWriter{&mu, &log}, nil)) })
	two := sent(0, 2)
	for name, test := range map[string]struct {
		kind, path string
		change     func(*api.Function)
		header     []string
		cuts       []string
		states     []string // sent to instances
		why        string   // why it is not resumed; empty: the client knows, or it never is
	}{
		"off":       {kind: api.RuntimeEngine, header: []string{control.HeaderResume, "off"}, cuts: []string{two}, states: []string{""}},
		"sglang":    {kind: api.RuntimeSGLang, cuts: []string{two}, states: []string{""}},
		"handler":   {kind: api.RuntimeEngine, change: func(f *api.Function) { f.Handler = []string{"x"} }, cuts: []string{two}, states: []string{""}, why: "the function has a handler"},
		"no state":  {kind: api.RuntimeEngine, cuts: []string{"data: " + words[0] + "\n\n"}, states: []string{"new"}, why: "has not told how"},
		"too often": {kind: api.RuntimeEngine, cuts: []string{two, sent(2, 3), control.StateComment + "x", sent(3, 3) + ": \n\n"}, states: []string{"new", "id:1::0:11;12", "id:1::0:11;12;13,14", "id:1::0:11;12;13,14"}, why: "too often"},
		"forged":    {kind: api.RuntimeSGLang, header: []string{control.HeaderState, "id:1::0:11"}, cuts: []string{two}, states: []string{""}},
		"too long":  {kind: api.RuntimeEngine, cuts: []string{control.StateComment + strings.Repeat("1,", 30<<10) + "\ndata: " + words[0] + "\n\n"}, states: []string{"new"}, why: "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			f := streamed(b, strings.ReplaceAll(name, " ", "-"), test.kind, test.change)
			f.cuts = test.cuts
			_, got := b.post(chatPath, `{"model":"`+strings.ReplaceAll(name, " ", "-")+`","stream":true}`, test.header...)
			if !strings.HasPrefix(got, "data: "+words[0]) && !strings.HasPrefix(got, control.StateComment) || !strings.Contains(got, `"code":"stream_cut"`) || strings.Contains(got, "[DONE]") || !strings.Contains(got, test.why) {
				t.Errorf("got %.2000q", got)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if strings.Join(f.states, " ") != strings.Join(test.states, " ") {
				t.Errorf("instances were told %.300q, want %q", f.states, test.states)
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), `"resumed":3`) {
		t.Errorf("the access log: %s", log.String())
	}
}

// lockedWriter is a writer for several goroutines.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// moves returns the output of an instance that gives way after the first n events.
func moves(from, n int) string { return sent(from, n) + control.MovedComment + "\n\n" }

// TestStreamsMove: an instance gives way after each event, more often than a stream may be cut, and the client gets
// each event once. The moves are in the record of picks.
func TestStreamsMove(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	b := startBench(t, nil, func(d *Deps) { d.Access = slog.New(slog.NewJSONHandler(&lockedWriter{&mu, &log}, nil)) })
	f := streamed(b, "m", api.RuntimeEngine, nil)
	for n := 1; n < len(words); n++ {
		f.mu.Lock()
		f.cuts = []string{moves(0, n)}
		f.mu.Unlock()
		if resp, got := b.post(chatPath, `{"model":"m","stream":true}`); resp.StatusCode != http.StatusOK || got != whole() {
			t.Fatalf("moved behind event %d: got %s %q", n, resp.Status, got)
		}
	}
	f.mu.Lock()
	f.cuts = []string{moves(0, 1), moves(1, 2), moves(2, 2), moves(2, 3), moves(3, 5)}
	f.mu.Unlock()
	resp, got := b.post(chatPath, `{"model":"m","stream":true}`, "X-Request-Id", "often")
	if resp.StatusCode != http.StatusOK || got != whole() {
		t.Fatalf("moved five times: got %s %q", resp.Status, got)
	}
	picks := b.a.Picks("often")
	if len(picks) != 6 || picks[0].After != "" || picks[5].After != api.CodeMoved {
		t.Errorf("the choices: %+v", picks)
	}
	mu.Lock()
	defer mu.Unlock()
	if line := log.String(); !strings.Contains(line, `"moved":5`) || strings.Contains(line, `"resumed"`) {
		t.Errorf("the access log: %s", line)
	}
}

// TestWholeRequestsMove: a request that is no stream is restarted if its instance gives way, unless its client opts
// out, and not too often: then its instance is told that it must answer.
func TestWholeRequestsMove(t *testing.T) {
	b := startBench(t, nil)
	fn := b.function("m", func(s *api.Function) { s.Runtime.Kind, s.MaxScale = api.RuntimeEngine, 2 })
	var mu sync.Mutex
	var told []string
	for i := range 2 {
		b.instance(fn, "m-"+strconv.Itoa(i), api.Awake).chat = func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			state := r.Header.Get(control.HeaderState)
			mu.Lock()
			told = append(told, state)
			mu.Unlock()
			if state == "" {
				_, _ = io.WriteString(w, `{"ok":true}`)
				return
			}
			w.Header().Set(control.HeaderRefused, api.CodeMoved)
			api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeMoved, "it gives way"))
		}
	}
	for _, test := range []struct {
		header []string
		want   string
	}{{nil, "new new "}, {[]string{control.HeaderResume, "off"}, ""}} {
		told = nil
		resp, got := b.post(chatPath, `{"model":"m"}`, test.header...)
		if resp.StatusCode != http.StatusOK || got != `{"ok":true}` {
			t.Errorf("got %s %q", resp.Status, got)
		}
		if got := strings.Join(told, " "); got != test.want {
			t.Errorf("instances were told %q, want %q", got, test.want)
		}
	}
}

// TestWaitsOfResumptionsCount: a stream's waits for other instances are in the histogram of holds, each time.
func TestWaitsOfResumptionsCount(t *testing.T) {
	b := startBench(t, nil)
	fn := b.function("m", func(s *api.Function) { s.Runtime.Kind, s.MaxScale = api.RuntimeEngine, 1 })
	f := &resumable{cuts: []string{sent(0, 1), moves(1, 2)}}
	b.instance(fn, "m-0", api.Awake).chat = f.chat
	if resp, got := b.post(chatPath, `{"model":"m","stream":true}`); resp.StatusCode != http.StatusOK || got != whole() {
		t.Fatalf("got %s %q", resp.Status, got)
	}
	for _, want := range []string{
		`rouse_activator_hold_seconds_count{function="default/m"} 2`, `rouse_activator_retries_total{function="default/m",reason="stream_cut"} 1`,
		`rouse_activator_retries_total{function="default/m",reason="moved"} 1`, `rouse_activator_ttft_seconds_count{function="default/m"} 1`,
	} {
		if got := b.metrics(); !strings.Contains(got, want) {
			t.Errorf("the metrics lack %s:\n%s", want, got)
		}
	}
}
