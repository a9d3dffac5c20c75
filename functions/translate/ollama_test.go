package translate

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// tagging is a handler of a model whose name has the tag itself, with a context of 100 tokens.
var tagging = &Handler{Names: []api.ModelName{"m", "x:latest"}}

func TestFromOllama(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	const streams = `"stream":true,"stream_options":{"include_usage":true},`
	for _, tc := range []struct{ name, path, in, want string }{
		{"a chat", "/api/chat", `{"model":"m",` + hi + `}`, `{"model":"m",` + streams + hi + `}`},
		{"no stream", "/api/chat", `{"model":"m:latest","stream":false,"keep_alive":"5m",` + hi + `}`, `{"model":"m","stream":false,` + hi + `}`},
		{"a name with a tag", "/api/chat", `{"model":"x:latest","stream":false,` + hi + `}`, `{"model":"x:latest","stream":false,` + hi + `}`},
		{"an old name", "/api/chat", `{"name":"m:latest","stream":false,` + hi + `}`, `{"model":"m","stream":false,` + hi + `}`},
		{"a prompt", "/api/generate", `{"model":"m","system":"s","prompt":"hi","template":"","context":[],"raw":false,"suffix":null}`, `{"model":"m",` + streams + `"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}]}`},
		{"images", "/api/generate", `{"stream":false,"prompt":"what","images":["iVBORw0KGgo="]}`,
			`{"stream":false,"messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}`},
		{"an image alone", "/api/chat", `{"stream":false,"messages":[{"role":"user","content":"","images":["/9j/"]}]}`,
			`{"stream":false,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,/9j/"}}]}]}`},
		{"options", "/api/chat", `{"stream":false,"options":{"num_predict":5,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":7,"stop":["a"],"repeat_penalty":1.1,"presence_penalty":0.2,"frequency_penalty":0.3,"repeat_last_n":-1},` + hi + `}`,
			`{"stream":false,"max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":7,"stop":["a"],"repetition_penalty":1.1,"presence_penalty":0.2,"frequency_penalty":0.3,` + hi + `}`},
		{"options that change nothing", "/api/chat", `{"stream":false,"options":{"num_predict":-2,"top_k":-5,"seed":-1,"stop":[],"mirostat":0,"mirostat_tau":5,"tfs_z":1,"typical_p":1.0,"repeat_last_n":64,"repeat_penalty":1,"num_ctx":99,"num_gpu":99,"num_thread":4,"use_mmap":true,"num_keep":4,"min_p":null},` + hi + `}`,
			`{"stream":false,"top_k":-1,"repetition_penalty":1,` + hi + `}`},
		{"json", "/api/chat", `{"stream":false,"format":"json",` + hi + `}`, `{"stream":false,"response_format":{"type":"json_object"},` + hi + `}`},
		{"a schema", "/api/chat", `{"stream":false,"format":{"type":"object"},` + hi + `}`, `{"stream":false,"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object"}}},` + hi + `}`},
		{"nothing to ask for", "/api/chat", `{"stream":false,"format":"","tools":[],"think":null,"truncate":false,"options":null,` + hi + `}`, `{"stream":false,` + hi + `}`},
		{"no thoughts", "/api/chat", `{"stream":false,"think":false,"chat_template_kwargs":{"a":1},` + hi + `}`, `{"stream":false,"chat_template_kwargs":{"a":1,"enable_thinking":false},` + hi + `}`},
		{"thoughts", "/api/chat", `{"stream":false,"think":true,` + hi + `}`, `{"stream":false,"reasoning_effort":"medium","chat_template_kwargs":{"enable_thinking":true},` + hi + `}`},
		{"many thoughts", "/api/generate", `{"stream":false,"think":"high","prompt":"hi"}`, `{"stream":false,"reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":true},` + hi + `}`},
		{"a role as Ollama reads it", "/api/chat", `{"stream":false,"messages":[{"role":"User","content":"hi"}]}`, `{"stream":false,` + hi + `}`},
		{"a beginning", "/api/chat", `{"stream":false,"messages":[{"role":"user","content":"x"},{"role":"Assistant","content":"a"}]}`, `{"stream":false,"add_generation_prompt":false,"continue_final_message":true,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a"}]}`},
		{"a raw prompt", "/api/generate", `{"stream":false,"raw":true,"prompt":"a\nb","think":false,"logprobs":false,"top_logprobs":0,"width":0,"format":"json","options":{"num_predict":3}}`, `{"stream":false,"prompt":"a\nb","response_format":{"type":"json_object"},"max_tokens":3}`},
		{"scores that nobody asked for", "/api/chat", `{"stream":false,"top_logprobs":2,` + hi + `}`, `{"stream":false,` + hi + `}`},
		{"tools, used", "/api/chat", `{"stream":false,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f","arguments":{"a": 1}}},{"id":"own","function":{"name":"g"}},{"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_name":"g","content":"1"},{"role":"tool","tool_name":"f","content":"2"},{"role":"tool","content":"3"}]}`,
			`{"stream":false,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[{"id":"call_1_0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"own","type":"function","function":{"name":"g","arguments":"{}"}},{"id":"call_1_2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"own","content":"1"},{"role":"tool","tool_call_id":"call_1_0","content":"2"},{"role":"tool","tool_call_id":"call_1_2","content":"3"}]}`},
		{"what may be the runtime's", "/api/chat", `{"stream":false,"cache_salt":"s","logprobs":true,"top_logprobs":2,` + hi + `}`, `{"stream":false,"cache_salt":"s","logprobs":true,"top_logprobs":2,` + hi + `}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := tagging.translate(tc.path, []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			var want, have any
			if err := errors.Join(json.Unmarshal([]byte(tc.want), &want), json.Unmarshal(got, &have)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedOllama(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for _, tc := range []struct{ path, body, says string }{
		{"/api/chat", ``, "not a JSON object"}, {"/api/chat", `{"messages":"hello"}`, "messages: it has the wrong type"}, {"/api/chat", `{"model":7,` + hi + `}`, "model: it has the wrong type"},
		{"/api/chat", `{"raw":true,` + hi + `}`, "raw can't be kept"},
		{"/api/generate", `{"prompt":"x","raw":true,"system":"s"}`, "raw can't be kept beside system"},
		{"/api/generate", `{"prompt":"x","raw":true,"images":["AA=="]}`, "raw can't be kept beside system or images"},
		{"/api/generate", `{"prompt":"x","raw":true,"think":true}`, "think can't be kept beside raw"},
		{"/api/generate", `{"prompt":"x","raw":true,"logprobs":true}`, "logprobs can't be kept beside raw"},
		{"/api/generate", `{"prompt":"x","raw":1}`, "raw: it has the wrong type"},
		{"/api/generate", `{"prompt":"x","width":64}`, "width can't be kept"},
		{"/api/generate", `{"prompt":"x","template":"t"}`, "template can't be kept"},
		{"/api/generate", `{"prompt":"x","context":[1]}`, "context can't be kept"},
		{"/api/generate", `{"prompt":"x","suffix":"s"}`, "suffix can't be kept"},
		{"/api/generate", `{"prompt":["x"]}`, "prompt: it has the wrong type"},
		{"/api/generate", `{"prompt":"x","images":["?"]}`, "images[0] is no base64"},
		{"/api/chat", `{"truncate":true,` + hi + `}`, "truncate can't be kept"},
		{"/api/chat", `{"think":"very",` + hi + `}`, "think is very"},
		{"/api/chat", `{"think":{},` + hi + `}`, "think is {}"},
		{"/api/chat", `{"format":"xml",` + hi + `}`, "format is"},
		{"/api/chat", `{"stream":1,` + hi + `}`, "stream: want true or false"},
		{"/api/chat", `{"options":{"mirostat":1},` + hi + `}`, "options.mirostat is 1"},
		{"/api/chat", `{"options":{"typical_p":0.5},` + hi + `}`, "options.typical_p is 0.5"},
		{"/api/chat", `{"options":{"repeat_last_n":64,"repeat_penalty":1.1},` + hi + `}`, "options.repeat_last_n is 64"},
		{"/api/chat", `{"options":{"num_predict":1.5},` + hi + `}`, "options.num_predict is 1.5"},
		{"/api/chat", `{"options":{"grammar":"x"},` + hi + `}`, `options.grammar is "x"`},
		{"/api/chat", `{"options":{"unknown":1},` + hi + `}`, "options.unknown is 1"},
		{"/api/chat", `{"options":[],` + hi + `}`, "options: it has the wrong type"},
		{"/api/chat", `{"messages":[{"role":"robot"}]}`, "want system, user, assistant or tool"},
		{"/api/chat", `{"messages":[{"role":"assistant","content":" "}]}`, "ends with no text"},
	} {
		h := *tagging
		h.Next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the runtime was asked", tc.body) })
		if w := h.ask(tc.path, tc.body); w.Code != 400 || !plainError(w.Body.String(), tc.says) {
			t.Errorf("%s: got %d %s, want a 400 with %q", tc.body, w.Code, w.Body, tc.says)
		}
	}
}

// ask sends a request to a handler.
func (h Handler) ask(path, body string) *httptest.ResponseRecorder {
	h.Door, h.Client = inbound.New(inbound.Config{}), func(*http.Request) string { return "c" }
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

// plainError reports whether a text is an error in Ollama's shape, and nothing else, with want in it.
func plainError(text, want string) bool {
	var e map[string]string
	return json.Unmarshal([]byte(text), &e) == nil && len(e) == 1 && e["error"] != "" && strings.Contains(e["error"], want) && strings.HasSuffix(text, "}\n")
}

const turn = `{"model":"m:latest","messages":[{"role":"user","content":"hi"}]}`

func TestOllamaAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		completes := func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, answer)
		}
		const counts = `"done":true,"done_reason":"stop","total_duration":1000000000,"load_duration":0,"prompt_eval_count":10,"prompt_eval_duration":0,"eval_count":4,"eval_duration":1000000000}`
		const calls = `"tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":{"n":12345678901234567890}}},{"id":"c2","function":{"index":1,"name":"g","arguments":{}}}]`
		for path, want := range map[string]string{
			"/api/chat":     `{"model":"m:latest","created_at":"AT","message":{"role":"assistant","content":"a\u003cb","thinking":"hm",` + calls + `},` + counts,
			"/api/generate": `{"model":"m:latest","created_at":"AT","response":"a\u003cb","thinking":"hm",` + calls + `,` + counts,
		} {
			want = strings.Replace(want, "AT", time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano), 1)
			w := asks(path, `{"prompt":"hi","stream":false,`+turn[1:], completes)
			if got := w.Body.String(); w.Code != 200 || got != want || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: got %d %v\n%s\nwant\n%s", path, w.Code, w.Header(), got, want)
			}
		}
	})
	w := asks("/api/chat", turn, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"model":"m","choices":[{"message":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1}]},"finish_reason":"length"}]}`)
	})
	if got := w.Body.String(); !strings.Contains(got, `"done_reason":"length","logprobs":[{"token":"a","logprob":-1}],`) {
		t.Errorf("a limit, and scores: got %s", got)
	}
}

// TestOllamaLoads checks that a request without a prompt loads the model, and generates nothing.
func TestOllamaLoads(t *testing.T) {
	for path, body := range map[string]string{"/api/chat": `{"model":"m"}`, "/api/generate": `{"model":"m","prompt":"","keep_alive":0}`} {
		w := asks(path, body, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/v1/models" || r.ContentLength != 0 {
				t.Errorf("%s: the runtime is asked %s %s", path, r.Method, r.URL)
			}
			_, _ = io.WriteString(w, `{"data":[]}`)
		})
		if got := w.Body.String(); w.Code != 200 || !strings.Contains(got, `"done":true,"done_reason":"load"}`) {
			t.Errorf("%s: got %d %s", path, w.Code, got)
		}
		w = asks(path, body, func(w http.ResponseWriter, _ *http.Request) {
			api.WriteError(w, api.Errorf(503, api.CodeAsleep, "asleep"))
		})
		if w.Code != 503 || w.Body.String() != "{\"error\":\"asleep\"}\n" {
			t.Errorf("%s, asleep: got %d %s", path, w.Code, w.Body)
		}
	}
}

// TestOllamaRaw checks that a raw prompt is completed as a text, both complete and as a stream.
func TestOllamaRaw(t *testing.T) {
	for _, stream := range []string{"false", "true"} {
		w := asks("/api/generate", `{"model":"m","prompt":"x","raw":true,"stream":`+stream+`}`, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != pathText {
				t.Errorf("the runtime is asked %s", r.URL)
			}
			if stream == "true" {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, `data: {"model":"m","choices":[{"text":"a"}]}`+"\n\n"+`data: {"model":"m","choices":[{"text":"b","finish_reason":"length"}]}`+"\n\n"+"data: [DONE]\n\n")
				return
			}
			_, _ = io.WriteString(w, `{"model":"m","choices":[{"text":"ab","finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
		})
		text, last := "", ollamaLine{}
		for line := range strings.Lines(w.Body.String()) {
			last = ollamaLine{ollamaCounts: &ollamaCounts{}}
			if err := json.Unmarshal([]byte(line), &last); err != nil || last.Response == nil {
				t.Fatalf("%s: %v", line, err)
			}
			text += *last.Response
		}
		if text != "ab" || !last.Done || last.Reason != "length" {
			t.Errorf("stream %s: got %s", stream, w.Body)
		}
	}
}

func TestOllamaFailures(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"OpenAI's shape", `{"error":{"message":"too hot","type":"invalid_request_error","param":"temperature","code":null}}`, 400, `{"error":"too hot"}`},
		{"the client's name of a field", `{"error":{"message":"max_tokens is 9: want less","param":"max_tokens"}}`, 400, `{"error":"options.num_predict is 9: want less"}`},
		{"a text", `oh no`, 500, `{"error":"the runtime failed"}`},
		{"no completion", `{"object":"list"}`, 200, `{"error":"the runtime answered with something that is no chat completion"}`},
	} {
		w := asks("/api/chat", turn, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
		})
		want := tc.status
		if want == 200 {
			want = 502
		}
		if w.Code != want || w.Body.String() != tc.want+"\n" || w.Header().Get("Retry-After") != "3" {
			t.Errorf("%s: got %d %s, want %d %s", tc.name, w.Code, w.Body, want, tc.want)
		}
	}
}

// chatLines are the chunks in /api/chat's form; generateLines in /api/generate's.
const (
	chatLines = `{"model":"m:latest","created_at":"AT","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}
{"model":"m:latest","created_at":"AT","message":{"role":"assistant","content":"a"},"done":false}
{"model":"m:latest","created_at":"AT","message":{"role":"assistant","content":"b"},"done":false}
{"model":"m:latest","created_at":"AT","message":{"role":"assistant","content":"","tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":{"a":1}}},{"id":"c2","function":{"index":1,"name":"g","arguments":{}}}]},"done":false}
{"model":"m:latest","created_at":"AT","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":N,"load_duration":N,"prompt_eval_count":5,"prompt_eval_duration":N,"eval_count":6,"eval_duration":N}
`
	generateLines = `{"model":"m:latest","created_at":"AT","response":"","thinking":"hm","done":false}
{"model":"m:latest","created_at":"AT","response":"a","done":false}
{"model":"m:latest","created_at":"AT","response":"b","done":false}
{"model":"m:latest","created_at":"AT","response":"","tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":{"a":1}}},{"id":"c2","function":{"index":1,"name":"g","arguments":{}}}],"done":false}
{"model":"m:latest","created_at":"AT","response":"","done":true,"done_reason":"stop","total_duration":N,"load_duration":N,"prompt_eval_count":5,"prompt_eval_duration":N,"eval_count":6,"eval_duration":N}
`
)

var (
	stamp  = regexp.MustCompile(`"created_at":"[^"]*"`)
	lasted = regexp.MustCompile(`_duration":[0-9]+`)
)

// timeless returns a text without its times.
func timeless(text string) string {
	return lasted.ReplaceAllString(stamp.ReplaceAllString(text, `"created_at":"AT"`), `_duration":N`)
}

// lines sends parts of a stream, and returns the client's bytes.
func lines(t *testing.T, path string, parts ...string) string {
	w := asks(path, `{"prompt":"hi",`+turn[1:], func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	})
	if w.Header().Get("Content-Type") != "application/x-ndjson" && len(parts) > 0 {
		t.Errorf("%s: the header %v", path, w.Header())
	}
	return timeless(w.Body.String())
}

// TestOllamaStream checks a stream as a whole, and in two parts, cut at each byte.
func TestOllamaStream(t *testing.T) {
	for path, want := range map[string]string{"/api/chat": chatLines, "/api/generate": generateLines} {
		if diff := cmp.Diff(want, lines(t, path, chunks)); diff != "" {
			t.Fatalf("%s: (-want +got):\n%s", path, diff)
		}
		for at := range chunks {
			if got := lines(t, path, chunks[:at], chunks[at:]); got != want {
				t.Fatalf("%s cut at %d: got\n%s", path, at, got)
			}
		}
	}
}

// TestCutOllamaStream checks that a truncated stream ends with an error, that each line is JSON, and that none ends
// the answer.
func TestCutOllamaStream(t *testing.T) {
	end := strings.Index(chunks, "[DONE]") + len("[DONE]")
	for at := range end {
		got := strings.SplitAfter(lines(t, "/api/chat", chunks[:at]), "\n")
		last := got[len(got)-2]
		if !plainError(last, "ended the stream before") && !plainError(last, "no chunk of a chat completion") || strings.Contains(strings.Join(got, ""), `"done":true`) {
			t.Fatalf("cut at %d: got\n%s", at, got)
		}
	}
	head := chunks[:strings.Index(chunks, `data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{},"finish_reason"`)]
	for last, says := range map[string]string{
		`data: {"error":{"message":"out of memory","code":500}}` + "\n\n": "out of memory",
		"data: [DONE]\n\n": "before the answer was complete",
		`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("x", maxLine-100) + "\"}}]}}]}\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("x", 100) + "\"}}]}}]}\n\n": "too long",
	} {
		got := strings.SplitAfter(lines(t, "/api/chat", head, last, "data: [DONE]\n\n"), "\n")
		if len(got) != 5 || !plainError(got[3], says) {
			t.Errorf("%.80s: got\n%.2000s", last, got)
		}
	}
}

// TestOllamaTimes checks that a stream has the times of the prompt and of the answer.
func TestOllamaTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := asks("/api/chat", turn, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, p := range strings.SplitAfter(chunks, "\n\n")[:5] { // a comment, the role, a thought and two texts
				time.Sleep(time.Second)
				_, _ = io.WriteString(w, p)
			}
			_, _ = io.WriteString(w, `data: {"choices":[{"delta":{},"finish_reason":"length"}]}`+"\n\ndata: [DONE]\n\n")
		})
		if got := w.Body.String(); !strings.Contains(got, `"done_reason":"length","total_duration":5000000000,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":3000000000,"eval_count":0,"eval_duration":2000000000}`) {
			t.Errorf("got\n%s", got)
		}
	})
}

// FuzzFromOllama checks that an accepted request becomes a JSON object with messages or only loads the model, and
// that a refusal names the client's mistake.
func FuzzFromOllama(f *testing.F) {
	f.Add([]byte(turn), true)
	f.Add([]byte(`{"prompt":"x","images":["AA=="],"options":{"num_ctx":1e99,"seed":-0},"format":{},"think":false,"chat_template_kwargs":null}`), false)
	f.Add([]byte(`{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"x"}}]},{"role":"tool"}]}`), true)
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		path := "/api/generate"
		if chat {
			path = "/api/chat"
		}
		got, to, err := tagging.translate(path, body)
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Status != http.StatusBadRequest || e.Message == "" {
				t.Fatalf("got %v", err)
			}
			return
		}
		var o struct{ Messages []struct{ Role string } }
		if err := json.Unmarshal(got, &o); to.path == "" && (err != nil || len(o.Messages) == 0) {
			t.Fatalf("made %s of it: %v", got, err)
		}
		told, is := to.answer([]byte(answer))
		if _, err := json.Marshal(told); err != nil || !is {
			t.Fatal(is, err)
		}
	})
}

// FuzzOllamaStream checks that the output does not depend on how a stream is cut into parts, that each line is JSON,
// and that only the last line ends the answer or is an error.
func FuzzOllamaStream(f *testing.F) {
	f.Add([]byte(chunks), 5)
	f.Add([]byte("data: {\"error\":{}}\n\ndata: [DONE]\n\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		one, many := httptest.NewRecorder(), httptest.NewRecorder()
		to := (&ollamaRequest{request: &request{object: object{}}, model: "m"}).ask("")
		s, parts := newStream(one, to, nil), newStream(many, to, nil)
		_, _ = s.Write(in)
		s.close()
		size = max(1, size%64)
		for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			_, _ = parts.Write(rest[:min(size, len(rest))])
		}
		parts.close()
		got := one.Body.Bytes()
		if a, b := timeless(string(got)), timeless(many.Body.String()); a != b {
			t.Fatalf("as a whole\n%s\nin parts of %d\n%s", a, size, b)
		}
		for line := range bytes.Lines(got) {
			var l struct {
				Done  bool
				Error *string
			}
			err := json.Unmarshal(line, &l)
			got = got[len(line):]
			if ends := l.Done || l.Error != nil; err != nil || ends != (len(got) == 0) || !bytes.HasSuffix(line, []byte("\n")) {
				t.Fatalf("the line %q (%v), before %q", line, err, got)
			}
		}
	})
}
