package functions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/pyfunc"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/translate"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/relay"
)

// counting is a model server that counts its tokens and reports them in the way of a kind, when asked. The request's seed determines the
// answer, and after how many events it breaks off.
type counting struct {
	kind string

	sync.Mutex // held while a request is answered

	w        http.ResponseWriter
	flush    *http.ResponseController
	random   *rand.Rand
	chat     bool
	n        int
	end, all bool // the options of the stream
	times    bool // of llama-server
	cut      int  // events before it breaks off; negative: it does not
	made     []int
	said     []int // tokens of each choice up to its last event
	shown    int   // of all
	prompt   int
}

// asksCounting is the relevant part of a request.
type asksCounting struct {
	Stream  bool
	N       int
	Seed    uint64
	Cut     int  `json:"max_tokens"`
	Times   bool `json:"timings_per_token"`
	Options struct {
		End bool `json:"include_usage"`
		All bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in asksCounting
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.Lock()
	defer c.Unlock()
	c.w, c.flush, c.random = w, http.NewResponseController(w), rand.New(rand.NewPCG(in.Seed, 1))
	c.chat, c.n, c.end, c.all, c.times, c.cut = strings.Contains(r.URL.Path, "chat"), max(in.N, 1), in.Options.End, in.Options.End && in.Options.All, in.Times, in.Cut-1
	if c.kind == api.RuntimeSGLang {
		c.all = in.Options.All
	}
	c.made, c.said, c.shown, c.prompt = make([]int, c.n), make([]int, c.n), 0, 40+c.random.IntN(60)
	if !in.Stream {
		w.Header().Set("Content-Type", "application/json")
		c.made[0], c.shown = 7, 7
		fmt.Fprintf(w, `{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"你好"},"text":"a","finish_reason":"stop"}],"data":[{"index":0,"embedding":[0.5]}],"usage":%s}`, c.usage(7))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	c.stream()
}

func (c *counting) usage(made int) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, c.prompt, c.prompt+made, made)
}

// send writes an event, in parts.
func (c *counting) send(data string) {
	if c.cut == 0 {
		panic(http.ErrAbortHandler)
	}
	c.cut--
	c.shown = 0
	for _, n := range c.said {
		c.shown += n
	}
	for event := "data: " + data + "\n\n"; event != ""; {
		n := 1 + rand.IntN(len(event)) // anywhere
		_, _ = io.WriteString(c.w, event[:n])
		_ = c.flush.Flush()
		event = event[n:]
	}
}

// chunk returns a chunk with a piece of choice i, or its end.
func (c *counting) chunk(i int, piece, finish string) {
	object, field := "text_completion", fmt.Sprintf(`"text":%q`, piece)
	if c.chat {
		object, field = "chat.completion.chunk", `"delta":`+piece
	}
	more, last := "", finish != "null"
	switch usage := `,"usage":` + c.usage(c.made[i]); {
	case c.kind == api.RuntimeLlamaCpp:
		if c.times && !last || last && !c.end {
			more = fmt.Sprintf(`,"timings":{"cache_n":3,"prompt_n":%d,"predicted_n":%d,"predicted_ms":1.5}`, c.prompt-3, c.made[i])
		}
	case c.all:
		more = usage
	case c.kind == api.RuntimeEngine && c.end, c.kind == api.RuntimeSGLang && (!c.chat || strings.Contains(piece, "tool_calls")):
		more = `,"usage":null`
	case c.kind == api.RuntimeOllama && c.end && !c.chat:
		more = `,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`
	}
	if c.kind == api.RuntimeVLLM && last && !c.end {
		more = `,"system_fingerprint":"vllm-1-ab"` + more
	}
	if c.cut != 0 {
		c.said[i] = c.made[i]
	}
	c.send(fmt.Sprintf(`{"id":"c","object":%q,"created":1,"model":"m","choices":[{"index":%d,%s,"logprobs":null,"finish_reason":%s}]%s}`, object, i, field, finish, more))
}

// alone sends a chunk with the usage and no choice, in one write with the previous event.
func (c *counting) alone(made int, more string) {
	if c.cut >= 0 {
		c.cut++
	}
	c.send(`{"id":"c","object":"x","created":1,"model":"m","choices":[],"usage":` + c.usage(made) + more + `}`)
}

// stream generates thoughts, text and a call, with a random number of tokens per event. Some tokens have no event.
func (c *counting) stream() {
	each := 4
	if c.kind == api.RuntimeOllama || c.kind == api.RuntimeRayServe || c.kind == api.RuntimeCommand { // its events are the only count
		each = 1
	}
	words := []string{"hello ", "世界", "。", `"usage":{"completion_tokens":9}`, "\n", "data: x", "a.delta", "🦊", ": rouse-usage 1 1 1\n"}
	text := func(s string) string {
		if !c.chat {
			return s
		}
		quoted, _ := json.Marshal(s)
		return `{"content":` + string(quoted) + `}`
	}
	if c.chat {
		for i := range c.n {
			c.chunk(i, `{"role":"assistant","content":""}`, "null")
		}
	}
	for range 9 {
		for i := range c.n {
			c.made[i] += 1 + c.random.IntN(each)
			word := words[c.random.IntN(len(words))]
			quoted, _ := json.Marshal(word)
			switch what := c.random.IntN(4); {
			case what == 0 && each > 1: // a parser holds it back
			case what == 1 && c.chat && c.n == 1:
				c.chunk(i, `{"reasoning_content":`+string(quoted)+`}`, "null")
			default:
				c.chunk(i, text(word), "null")
			}
		}
	}
	for i := range c.n {
		if c.chat {
			for part := range 3 {
				c.made[i] += 1 + c.random.IntN(each)
				c.chunk(i, fmt.Sprintf(`{"role":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":%q}}]}`, []string{`{"a"`, `:"输入`, `"}`}[part]), "null")
			}
		}
		if each > 1 {
			c.made[i]++ // the end is a token too
		}
		c.chunk(i, text(""), `"stop"`)
		if c.end && c.kind == api.RuntimeLlamaCpp {
			c.alone(c.made[i], fmt.Sprintf(`,"timings":{"cache_n":3,"prompt_n":%d,"predicted_n":%d}`, c.prompt-3, c.made[i]))
		}
	}
	if c.end && c.kind != api.RuntimeLlamaCpp {
		made := 0
		for _, n := range c.made {
			made += n
		}
		more := ""
		if c.kind == api.RuntimeVLLM {
			more = `,"system_fingerprint":"vllm-1-ab"`
		}
		c.alone(made, more)
	}
	c.send("[DONE]")
}

// openGate admits all requests.
type openGate string

func (g openGate) Enter() (string, *api.Error)      { return string(g), nil }
func (g openGate) EnterProbe() (string, *api.Error) { return string(g), nil }
func (g openGate) EnterBehind(ctx context.Context, _ time.Duration) (string, context.Context, func() *api.Error, *api.Error) {
	return string(g), ctx, nil, nil
}
func (openGate) Leave()       {}
func (openGate) Moved()       {}
func (openGate) Unreachable() {}

// counted is an instance with a counting server, and an activator that counts its answers.
type counted struct {
	t       *testing.T
	truth   *counting
	direct  *httptest.Server
	door    *httptest.Server
	outcome chan proxy.Outcome
}

func newCounted(t *testing.T, kind string) *counted {
	c := &counted{t: t, truth: &counting{kind: kind}, outcome: make(chan proxy.Outcome, 1)}
	c.direct = httptest.NewServer(c.truth)
	t.Cleanup(c.direct.Close)
	transport := localhttp.New(4, time.Minute)
	spec := api.Runtime{Kind: kind, Endpoint: api.Endpoint(c.direct.URL)}
	if kind == api.RuntimeEngine {
		spec = api.Runtime{Kind: kind, Model: "m"}
	}
	if kind == api.RuntimeOllama {
		spec.Model = "ollama://m"
	}
	dialect, err := runtime.New(runtime.Config{Spec: spec, Model: "m", Dir: t.TempDir(), Transport: transport, Engine: "/bin/true"})
	if err != nil {
		t.Fatal(err)
	}
	door := inbound.New(inbound.Config{})
	var next http.Handler = proxy.New(proxy.Config{Gate: openGate(c.direct.URL), Dialect: dialect, Transport: transport, Observe: func(o proxy.Outcome) { c.outcome <- o }})
	if kind == api.RuntimeEngine || kind == api.RuntimeRayServe {
		next = &translate.Handler{Next: next, Door: door, Client: proxy.Client, Reports: kind == api.RuntimeEngine}
	}
	py := pyfunc.New(pyfunc.Config{Next: next, Model: "m", Door: door, Parallel: 1, Status: func() api.InstanceStatus { return api.InstanceStatus{} }, Refusal: func() *api.Error { return nil }})
	mux := http.NewServeMux()
	mux.Handle("/invocations", py)
	mux.Handle("/", next)
	c.door = httptest.NewServer(mux)
	t.Cleanup(c.door.Close)
	return c
}

// ask returns what the activator's client gets, and the counts of the activator and of the function.
func (c *counted) ask(path, body string, tells bool) (string, relay.Usage, proxy.Outcome) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.door.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if tells {
		r.Header.Set(control.HeaderUsage, "true")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	u := relay.Usage{Style: api.EventsOf(path)}
	if said := resp.Header.Get(control.HeaderUsage); said != "" {
		u.Tell(said)
	}
	kind, lines := resp.Header.Get("Content-Type"), strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-ndjson")
	if lines {
		u.Style = api.StreamLines
	}
	var got bytes.Buffer
	if !lines && !strings.HasPrefix(kind, "text/event-stream") {
		_, _ = io.Copy(&got, resp.Body) // a cut answer is judged by the received part
		u.Part(got.Bytes())
		return got.String(), u, <-c.outcome
	}
	events := relay.NewEvents(relay.NewSource(c.t.Context(), resp.Body, 4<<10, 1<<20, nil), u.Style)
	for end := error(nil); end == nil; {
		var p []byte
		p, end = events.Next()
		u.See(p, 0)
		got.Write(u.Take(p))
	}
	return got.String(), u, <-c.outcome
}

// computed returns what the server computed for the last request, up to its last event.
func (c *counted) computed() (prompt, made int) {
	c.truth.Lock()
	defer c.truth.Unlock()
	return c.truth.prompt, c.truth.shown
}

// plain returns the server's own answer.
func (c *counted) plain(path, body string) string {
	c.t.Helper()
	resp, err := http.Post(c.direct.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // as above
	return string(text)
}

var countedKinds = []string{api.RuntimeEngine, api.RuntimeVLLM, api.RuntimeSGLang, api.RuntimeLlamaCpp, api.RuntimeRayServe, api.RuntimeOllama}

// TestWhatIsCountedIsWhatWasComputed: for a stream that is whole or cut after any event, the activator and the function's metrics count
// the tokens generated up to that event. The client gets the server's own bytes.
func TestWhatIsCountedIsWhatWasComputed(t *testing.T) {
	for _, kind := range countedKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newCounted(t, kind)
			for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
				for i, options := range []string{``, `,"stream_options":null`, `,"stream_options":{"include_usage":false}`, `,"stream_options":{"include_usage":true}`,
					`,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, `,"stream_options":{"continuous_usage_stats":true}`, `,"n":2`, `,"n":2,"stream_options":{"include_usage":true}`} {
					for part := range 9 {
						cut := max(0, 3*part-i%3)
						if cut == 1 { // before its first event
							continue
						}
						body := fmt.Sprintf(`{"model":"m","stream":true,"seed":%d,"max_tokens":%d%s}`, 10*i+cut, cut, options)
						want := c.plain(path, body)
						got, u, o := c.ask(path, body, true)
						if !strings.HasSuffix(want, "[DONE]\n\n") {
							got, _, _ = strings.Cut(got, `data: {"error"`)
						}
						if diff := cmp.Diff(want, got); diff != "" {
							t.Fatalf("%s %s: the client gets something else (-want +got):\n%s", path, body, diff)
						}
						if prompt, made := c.computed(); u.Tokens() != made || made > 0 && u.Prompt != prompt && reports(kind) || o.GeneratedTokens != made {
							t.Fatalf("%s %s: the activator counts %d and %d tokens, the function %d; want %d and %d\n%s", path, body, u.Prompt, u.Tokens(), o.GeneratedTokens, prompt, made, got)
						}
					}
				}
			}
		})
	}
}

// reports reports whether a kind of server reports its usage before the end.
func reports(kind string) bool {
	return kind != api.RuntimeRayServe && kind != api.RuntimeOllama
}

// varies matches the differences between two answers to one request, and the usage at a message's start.
var varies = regexp.MustCompile(`"(created_at|completed_at|[a-z_]*duration)":[^,}]*|"usage":\{"input_tokens":\d+,"cache_creation_input_tokens":0,"cache_read_input_tokens":\d+,"output_tokens":0\}`)

// TestTranslatedStreamsCount: the same for translated streams. The client gets the same with and without counting, except the usage at a
// message's start.
func TestTranslatedStreamsCount(t *testing.T) {
	for _, kind := range []string{api.RuntimeEngine, api.RuntimeRayServe} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newCounted(t, kind)
			for path, in := range map[string]string{
				"/v1/messages":  `"max_tokens":99,"messages":[{"role":"user","content":"x"}],"stream":true`,
				"/v1/responses": `"input":"x","stream":true`,
				"/api/chat":     `"messages":[{"role":"user","content":"x"}]`,
				"/api/generate": `"prompt":"x","raw":true`,
				"/invocations":  `"messages":[{"role":"user","content":"x"}],"stream":true`,
			} {
				for cut := range 18 {
					limit := `"max_tokens":`
					switch {
					case path == "/v1/responses":
						limit = `"max_output_tokens":`
					case strings.HasPrefix(path, "/api/"):
						limit = `"options":{"num_predict":`
					}
					body := fmt.Sprintf(`{"model":"m",%s,"seed":%d`, in, cut)
					if cut > 0 {
						if body += fmt.Sprintf(`,%s%d`, limit, cut+1); strings.HasPrefix(path, "/api/") {
							body += "}"
						}
					}
					body += "}"
					want, _, _ := c.ask(path, body, false)
					got, u, o := c.ask(path, body, true)
					clean := func(s string) string { return varies.ReplaceAllString(s, "") }
					if diff := cmp.Diff(clean(want), clean(got)); diff != "" {
						t.Fatalf("%s %s: the client gets something else (-want +got):\n%s", path, body, diff)
					}
					prompt, made := c.computed()
					if u.Tokens() != made && (reports(kind) || !strings.HasPrefix(path, "/api/")) || o.GeneratedTokens != made || reports(kind) && u.Prompt != prompt {
						t.Fatalf("%s %s: the activator counts %d and %d tokens, the function %d; want %d and %d\n%s", path, body, u.Prompt, u.Tokens(), o.GeneratedTokens, prompt, made, got)
					}
					if start := fmt.Sprintf(`"usage":{"input_tokens":%d,`, prompt); path == "/v1/messages" && reports(kind) && !strings.Contains(strings.SplitN(got, "\n\n", 2)[0], start) {
						t.Errorf("the message begins with %s; want %s", strings.SplitN(got, "\n\n", 2)[0], start)
					}
				}
			}
		})
	}
}

// TestWholeAnswersCount: the activator is told the counts that the client's answer lacks.
func TestWholeAnswersCount(t *testing.T) {
	c := newCounted(t, api.RuntimeEngine)
	inner := func(path, body string) string {
		text, _ := json.Marshal(map[string]any{"method": "POST", "url_path": path, "headers": map[string]string{"content-type": "application/json"}, "body": body, "body_type": "text", "requires_openai_compat": true})
		return string(text)
	}
	chat := `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	two, _ := json.Marshal(map[string]any{"inputs": []string{inner("/chat/completions", chat), inner("/chat/completions", strings.Replace(chat, `"m"`, `"m","stream":true`, 1))}})
	for path, test := range map[string]struct {
		body string
		made int // negative: see below
	}{
		"/v1/chat/completions":      {chat, 7},
		"/v1/completions":           {`{"model":"m","prompt":"x"}`, 7},
		"/v1/embeddings":            {`{"model":"m","input":"x"}`, 7},
		"/v1/messages":              {strings.Replace(chat, `"m"`, `"m","max_tokens":99`, 1), 7},
		"/v1/messages/count_tokens": {chat, 7},
		"/v1/responses":             {`{"model":"m","input":"x"}`, 7},
		"/api/chat":                 {strings.Replace(chat, `"m"`, `"m","stream":false`, 1), 7},
		"/api/generate":             {`{"model":"m","prompt":"x","stream":false}`, 7},
		"/api/embed":                {`{"model":"m","input":"x"}`, 7},
		"/api/embeddings":           {`{"model":"m","prompt":"x"}`, 7},
		"/invocations":              {string(two), -1},
	} {
		if test.made < 0 {
			c.outcome = make(chan proxy.Outcome, 2)
		}
		got, u, _ := c.ask(path, test.body, true)
		prompt, made := c.computed()
		if test.made < 0 { // both
			test.made, prompt = 7+made, 2*prompt
		}
		if u.Tokens() != test.made || u.Prompt != prompt || strings.Contains(strings.ToLower(got), "rouse-usage") {
			t.Errorf("%s: %d and %d tokens are counted, want %d and %d: %s", path, u.Prompt, u.Tokens(), prompt, test.made, got)
		}
	}
}
