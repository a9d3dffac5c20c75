package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/engine"
	chattemplate "github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/translate"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/relay"
)

// thinks is the template of a model that thinks first.
const thinks = `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor -%}
{{ '<|im_start|>assistant\n' }}{%- if enable_thinking is defined %}{{ '<think>\n' }}{%- if not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}{% endif %}`

// bareEngine is our engine in this process, with a small model of random weights.
func bareEngine(t *testing.T) string {
	t.Helper()
	f := infertest.Open(t, infertest.Spec{Context: 512})
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	inf, err := cpu.New(f, cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	e, err := infertest.Engine(inf, tok, engine.Config{Seats: 8})
	if err != nil {
		t.Fatal(err)
	}
	template, err := chattemplate.New(thinks, "", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1) // Run sends its end
	go func() { done <- e.Run(ctx) }()
	server := httptest.NewServer(serve.NewServer(e, template, serve.Config{Model: "m.gguf", ToolParser: "hermes"}))
	t.Cleanup(func() {
		server.Close()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		inf.Close()
	})
	return server.URL
}

// openGate lets everything in.
type openGate string

func (g openGate) Enter() (string, *api.Error)      { return string(g), nil }
func (g openGate) EnterProbe() (string, *api.Error) { return string(g), nil }
func (openGate) Leave()                             {}
func (openGate) Moved()                             {}
func (openGate) Unreachable()                       {}
func (g openGate) EnterBehind(ctx context.Context, _ time.Duration) (string, context.Context, func() *api.Error, *api.Error) {
	return string(g), ctx, nil, nil
}

// cutter is a transport to the engine that breaks off after a number of events; -1: never.
type cutter struct{ behind int }

func (c cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && c.behind >= 0 {
		resp.Body = &cutBody{resp.Body, c.behind}
	}
	return resp, err
}

type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p)
	for at := 0; ; {
		end := bytes.Index(p[at:n], []byte("\n\n"))
		if end < 0 {
			return n, err
		}
		at += end + 2
		if b.left--; b.left == 0 {
			return at, nil
		}
	}
}

// telling matches an answer's times and ids, which differ for each answer.
var telling = regexp.MustCompile(`"(created_at":"|[a-z_]+_duration":)[^",}]+|[A-Z0-9]{24,26}|("created(_at)?":)\d+`)

// own counts the matches in an answer, each once.
func own(text string) int {
	seen := map[string]bool{}
	for _, s := range telling.FindAllString(text, -1) {
		seen[s] = seen[s] || !strings.Contains(s, `:"`) && !strings.Contains(s, "_duration")
	}
	n := 0
	for _, counts := range seen {
		if counts {
			n++
		}
	}
	return n
}

// TestStreamsGoOnThroughTheFunction asks for streams of every API through a function's translator and proxy. The engine
// breaks off after each of its events, again and again. The stream continues with the state that the activator would
// have kept, and the client gets the same text as without.
func TestStreamsGoOnThroughTheFunction(t *testing.T) {
	t.Parallel()
	url := bareEngine(t)
	// ask returns what came until the stream ended or broke off, and which it was.
	ask := func(t *testing.T, path, body, state string, behind int) (text string, whole bool) {
		t.Helper()
		path, _, _ = strings.Cut(path, " ")
		door := inbound.New(inbound.Config{})
		p := proxy.New(proxy.Config{Gate: openGate(url), Transport: cutter{behind}, Tenants: true, Door: door})
		h := &translate.Handler{Next: p, Door: door, Client: proxy.Client, Names: []api.ModelName{"m"}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if state != "" {
			r.Header.Set(control.HeaderState, state)
		}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				broken := recover()
				if whole = broken == nil; broken != nil && broken != http.ErrAbortHandler {
					panic(broken)
				}
			}()
			h.ServeHTTP(w, r)
		}()
		if w.Code != http.StatusOK {
			t.Fatalf("%s %s: %d %s", path, state, w.Code, w.Body)
		}
		return w.Body.String(), whole
	}
	const (
		tool   = `{"name":"look","description":"d","parameters":{"type":"object","properties":{"at":{"type":"string","maxLength":5}},"required":["at"],"additionalProperties":false}}`
		form   = `{"type":"object","properties":{"a":{"type":"integer","maximum":99},"b":{"enum":["yes","no"]}},"required":["a","b"],"additionalProperties":false}`
		hi     = `"messages":[{"role":"user","content":"hi"}]`
		ollama = `"options":{"num_predict":16,"temperature":1.2,"seed":3`
	)
	schema := strings.Replace(strings.Replace(tool, "parameters", "input_schema", 1), `"description":"d",`, "", 1)
	has := map[string]string{ // what a form is there for
		"/v1/messages thinking": `"thinking_delta"`, "/v1/messages silent": `"type":"thinking"`, "/v1/messages tools": `"input_json_delta"`, "/v1/responses tools": `.function_call_arguments.delta`,
		"/v1/responses scores": `"top_logprobs":[{`, "/v1/responses thoughts and scores": `response.reasoning_text.delta`, "/api/chat think": `"thinking":"`, "/api/chat calls": `"tool_calls":[`,
		"/api/chat scores": `"logprobs":[{`, "/api/generate think": `"thinking":"`, "/v1/completions": `"text_offset":[0,2`,
	}
	for path, body := range map[string]string{
		"/v1/messages thinking":             `{"model":"m","max_tokens":40,"stream":true,"temperature":0.8,"seed":4,` + hi + `,"thinking":{"type":"enabled","budget_tokens":9}}`,
		"/v1/messages silent":               `{"model":"m","max_tokens":40,"stream":true,"temperature":0.8,"seed":4,` + hi + `,"thinking":{"type":"enabled","budget_tokens":9,"display":"omitted"}}`,
		"/v1/messages tools":                `{"model":"m","max_tokens":90,"stream":true,"temperature":0.9,"seed":2,` + hi + `,"tool_choice":{"type":"any"},"tools":[` + schema + `]}`,
		"/v1/messages stops":                `{"model":"m","max_tokens":24,"stream":true,"temperature":0,` + hi + `,"stop_sequences":["e","the"]}`,
		"/v1/responses tools":               `{"model":"m","max_output_tokens":90,"stream":true,"temperature":0.9,"seed":2,"input":"hi","tool_choice":"required","tools":[{"type":"function",` + tool[1:] + `]}`,
		"/v1/responses a form beside tools": `{"model":"m","max_output_tokens":60,"stream":true,"temperature":0.9,"seed":7,"input":"hi","text":{"format":{"type":"json_schema","name":"s","strict":true,"schema":` + form + `}},"tools":[{"type":"function",` + tool[1:] + `]}`,
		"/v1/responses scores":              `{"model":"m","max_output_tokens":16,"stream":true,"temperature":1.2,"seed":5,"input":"hi ä","include":["message.output_text.logprobs"],"top_logprobs":3}`,
		"/v1/responses scores of calls":     `{"model":"m","max_output_tokens":90,"stream":true,"temperature":0.9,"seed":2,"input":"hi","tool_choice":"required","tools":[{"type":"function",` + tool[1:] + `],"top_logprobs":0}`,
		"/v1/responses thoughts and scores": `{"model":"m","max_output_tokens":24,"stream":true,"temperature":0.9,"seed":2,"input":"hi","chat_template_kwargs":{"enable_thinking":true},"thinking_token_budget":6,"top_logprobs":1}`,
		"/api/chat":                         `{"model":"m",` + hi + `,` + ollama + `,"repeat_penalty":1.3}}`,
		"/api/chat think":                   `{"model":"m",` + hi + `,"think":true,"thinking_token_budget":6,` + ollama + `}}`,
		"/api/chat form":                    `{"model":"m",` + hi + `,"format":` + form + `,` + strings.Replace(ollama, "16", "60", 1) + `}}`,
		"/api/chat calls":                   `{"model":"m",` + hi + `,"tool_choice":"required","tools":[{"type":"function","function":` + tool + `}],` + strings.Replace(ollama, "16", "90", 1) + `}}`,
		"/api/chat scores":                  `{"model":"m",` + hi + `,"logprobs":true,"top_logprobs":2,` + ollama + `,"stop":["x","qu"]}}`,
		"/api/generate":                     `{"model":"m","prompt":"hi",` + ollama + `}}`,
		"/api/generate think":               `{"model":"m","prompt":"hi","think":true,"thinking_token_budget":6,` + ollama + `}}`,
		"/api/generate raw":                 `{"model":"m","prompt":"hi ","raw":true,` + ollama + `}}`,
		"/v1/chat/completions":              `{"model":"m","max_tokens":20,"stream":true,"stream_options":{"include_usage":true},"temperature":1.5,"seed":8,"logprobs":true,"top_logprobs":2,` + hi + `}`,
		"/v1/completions":                   `{"model":"m","max_tokens":12,"stream":true,"stream_options":{"include_usage":true},"temperature":1.5,"seed":1,"logprobs":2,"echo":true,"prompt":"hi ä"}`,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var all relay.State
			_, _ = ask(t, path, body, "", -1) // from now on the prompt is in the cache
			told, _ := ask(t, path, body, control.StateNew, -1)
			if !strings.Contains(told, has[path]) {
				t.Fatalf("no %s: %s", has[path], told)
			}
			ids := own(string((&relay.State{}).Take([]byte(told))))
			want := telling.ReplaceAllString(string(all.Take([]byte(told))), "$1$2")
			same := func(got, what string) {
				t.Helper()
				if n := own(got); n != ids {
					t.Errorf("%s the stream has %d ids and times of its own, want %d", what, n, ids)
				}
				if got = telling.ReplaceAllString(got, "$1$2"); got != want {
					t.Fatalf("%s the stream differs (-whole +got):\n%s", what, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
				}
			}
			plain, _ := ask(t, path, body, "", -1)
			same(plain, "without its state")
			events := strings.Count(all.Header(), ";") + 1
			if events < 5 {
				t.Fatalf("a stream of %d events: %s", events, want)
			}
			for behind := 1; behind <= events; behind++ {
				var s relay.State
				part, whole := ask(t, path, body, control.StateNew, behind)
				got := string(s.Take([]byte(part)))
				if !whole {
					if !s.Known() {
						t.Fatalf("cut behind %d events, the state is not known", behind)
					}
					part, whole = ask(t, path, body, s.Header(), -1)
					got += string(s.Take([]byte(part)))
				}
				if same(got, fmt.Sprintf("cut behind %d events", behind)); !whole {
					t.Errorf("cut behind %d events, it is not whole", behind)
				}
			}
			var s relay.State
			got := ""
			for behind, whole := 1, false; !whole; behind++ {
				var part string
				part, whole = ask(t, path, body, s.Header(), behind)
				if got += string(s.Take([]byte(part))); behind > 2*events+9 {
					t.Fatalf("it comes to no end: %s", got)
				}
			}
			same(got, "cut behind each event again")
		})
	}
}
