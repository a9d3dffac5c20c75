package translate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// asks sends a request to a handler in front of a runtime.
func asks(path, body string, runtime http.HandlerFunc) *httptest.ResponseRecorder {
	h := &Handler{Next: runtime, Door: inbound.New(inbound.Config{}), Client: func(*http.Request) string { return "c" }}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

const (
	hello  = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
	answer = `{"id":"chatcmpl-1","model":"m","choices":[{"message":{"role":"assistant","content":"a<b","reasoning_content":"hm","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"n\":12345678901234567890}"}},{"id":"c2","function":{"name":"g","arguments":""}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}}`
)

func TestRequest(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"a text", hello, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`},
		{"one block", `{"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}`, `{"messages":[{"role":"user","content":"hi"}]}`},
		{"blocks and an image", `{"messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"image","source":{"type":"url","url":"https://x/y"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"image_url","image_url":{"url":"https://x/y"}}]}]}`},
		{"system", `{"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"messages":[{"role":"user","content":""}]}`, `{"messages":[{"role":"system","content":"a\nb"},{"role":"user","content":""}]}`},
		{"tools, used", `{"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"?"},{"type":"tool_use","id":"c1","name":"f","input":{"a": 1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":[{"type":"text","text":"no"}]},{"type":"tool_result","tool_use_id":"c2"},{"type":"text","text":"go on"}]}]}`,
			`{"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],"tool_choice":"required","parallel_tool_calls":false,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"Error: no"},{"role":"tool","tool_call_id":"c2","content":""},{"role":"user","content":"go on"}]}`},
		{"one tool", `{"tools":[{"type":"custom","name":"f","input_schema":{},"strict":true}],"tool_choice":{"type":"tool","name":"f"},"messages":[{"role":"user","content":"x"}]}`,
			`{"tools":[{"type":"function","function":{"name":"f","parameters":{},"strict":true}}],"tool_choice":{"type":"function","function":{"name":"f"}},"messages":[{"role":"user","content":"x"}]}`},
		{"a choice without tools", `{"tool_choice":{"type":"auto"},"messages":[{"role":"user","content":"x"}]}`, `{"messages":[{"role":"user","content":"x"}]}`},
		{"the rest", `{"stream":true,"stop_sequences":["a"],"metadata":{"user_id":"u"},"service_tier":"auto","top_k":5,"thinking":{"type":"disabled"},"container":null,"cache_salt":"s","messages":[{"role":"user","content":"x"}]}`,
			`{"stream":true,"stream_options":{"include_usage":true},"stop":["a"],"user":"u","top_k":5,"cache_salt":"s","chat_template_kwargs":{"enable_thinking":false},"messages":[{"role":"user","content":"x"}]}`},
		{"thoughts", `{"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":8,"display":"summarized"},"chat_template_kwargs":{"a":1},"messages":[{"role":"user","content":"x"}]}`,
			`{"max_tokens":9,"thinking_token_budget":8,"chat_template_kwargs":{"a":1,"enable_thinking":true},"messages":[{"role":"user","content":"x"}]}`},
		{"thoughts as the model likes", `{"thinking":{"type":"adaptive"},"speed":"standard","user_profile_id":"u","messages":[{"role":"user","content":"x"}]}`, `{"messages":[{"role":"user","content":"x"}]}`},
		{"all thoughts are kept", `{"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"1"},{"type":"text","text":"a"}]},{"role":"user","content":"y"}]}`,
			`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a","reasoning_content":"1"},{"role":"user","content":"y"}]}`},
		{"the last thoughts are kept", `{"context_management":{"edits":[{"type":"clear_thinking_20251015"}]},"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"1"},{"type":"text","text":"a"}]},{"role":"user","content":"y"},{"role":"assistant","content":[{"type":"thinking","thinking":"2"},{"type":"text","text":"b"}]},{"role":"user","content":"z"},{"role":"assistant","content":"c"},{"role":"user","content":"!"}]}`,
			`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a"},{"role":"user","content":"y"},{"role":"assistant","content":"b","reasoning_content":"2"},{"role":"user","content":"z"},{"role":"assistant","content":"c"},{"role":"user","content":"!"}]}`},
		{"two thoughts are kept", `{"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":{"type":"thinking_turns","value":2}}]},"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"1"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"2"}]},{"role":"assistant","content":[{"type":"redacted_thinking"},{"type":"text","text":"b"}]},{"role":"user","content":"!"}]}`,
			`{"messages":[{"role":"assistant","content":""},{"role":"assistant","content":"","reasoning_content":"2"},{"role":"assistant","content":"b"},{"role":"user","content":"!"}]}`},
		{"no edits", `{"context_management":{"edits":[]},"messages":[{"role":"user","content":"x"}]}`, `{"messages":[{"role":"user","content":"x"}]}`},
		{"an instruction in between", `{"system":"s","messages":[{"role":"user","content":"x"},{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"x"},{"role":"system","content":"a\nb"}]}`},
		{"a beginning", `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a"}]}`, `{"add_generation_prompt":false,"continue_final_message":true,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a"}]}`},
		{"documents", `{"messages":[{"role":"user","content":[{"type":"document","title":"T","context":"C","source":{"type":"text","media_type":"text/plain","data":"d"}},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"e"}]},"citations":{"enabled":false}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"T\n\nC\n\nd"},{"type":"text","text":"e"}]}]}`},
		{"arguments that are none", `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f"},{"type":"tool_use","id":"d","name":"f","input":{"unfinished":"{"}}]},{"role":"user","content":"y"}]}`,
			`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"f","arguments":"{\"unfinished\":\"{\"}"}}]},{"role":"user","content":"y"}]}`},
		{"a schema", `{"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},"messages":[{"role":"user","content":"x"}]}`,
			`{"chat_template_kwargs":{"reasoning_effort":"low"},"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object"}}},"messages":[{"role":"user","content":"x"}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !strings.Contains(tc.in, `"max_tokens"`) { // it must be there
				tc.in, tc.want = `{"max_tokens":7,`+tc.in[1:], `{"max_tokens":7,`+tc.want[1:]
			}
			got, _, err := tagging.translate("/v1/messages", []byte(tc.in))
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

func TestRefused(t *testing.T) {
	user := `"messages":[{"role":"user","content":"x"}]`
	for body, says := range map[string]string{
		``: "not a JSON object", `[]`: "not a JSON object", `null`: "not a JSON object",
		`{}`: "messages is empty", `{"messages":7}`: "wrong type",
		`{` + user + `,"container":"c"}`:                                                                     "container can't be kept",
		`{` + user + `,"mcp_servers":[]}`:                                                                    "mcp_servers can't be kept",
		`{` + user + `}`:                                                                                     "max_tokens is missing",
		`{` + user + `,"max_tokens":null}`:                                                                   "max_tokens is missing",
		`{` + user + `,"max_tokens":0}`:                                                                      "max_tokens is 0",
		`{` + user + `,"max_tokens":"x"}`:                                                                    "max_tokens is",
		`{` + user + `,"thinking":{"type":"enabled"}}`:                                                       "thinking.budget_tokens is missing",
		`{` + user + `,"thinking":{"type":"enabled","budget_tokens":0.5}}`:                                   "no whole number from 1",
		`{` + user + `,"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":9}}`:                      "must be less than max_tokens, 9",
		`{` + user + `,"thinking":{"type":"adaptive","display":"drawn"}}`:                                    "want summarized or omitted",
		`{` + user + `,"output_config":{"effort":"most"}}`:                                                   "output_config.effort",
		`{` + user + `,"inference_geo":"us"}`:                                                                "inference_geo can't be kept",
		`{` + user + `,"speed":"fast"}`:                                                                      "speed is",
		`{` + user + `,"thinking":{"type":"often"}}`:                                                         "want enabled, disabled or adaptive",
		`{` + user + `,"tools":[{"type":"bash_20250124","name":"bash"}]}`:                                    "which Anthropic runs itself",
		`{` + user + `,"tools":[{"name":"f"}],"tool_choice":{"type":"x"}}`:                                   "tool_choice.type",
		`{` + user + `,"service_tier":"priority"}`:                                                           "service_tier",
		`{` + user + `,"stream":"yes"}`:                                                                      "stream: want true or false",
		`{` + user + `,"output_config":{"format":{"type":"xml"}}}`:                                           "want json_schema",
		`{"system":[{"type":"image"}],` + user + `}`:                                                         "system has a block of the type",
		`{"messages":[{"role":"robot","content":"x"}]}`:                                                      "want user, assistant or system",
		`{"messages":[{"role":"system","content":[{"type":"image"}]}]}`:                                      "only text can be kept",
		`{` + user + `,"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}}`:                "edits[0] is of the type",
		`{` + user + `,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":0}]}}`:        "edits[0].keep is 0",
		`{` + user + `,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":{}}]}}`:       "edits[0].keep is {}",
		`{` + user + `,"context_management":7}`:                                                              "context_management: it has the wrong type",
		`{"messages":[{"role":"assistant","content":""}]}`:                                                   "ends with no text",
		`{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}]}`: "ends with no text",
		`{"messages":"x"}`:                                                                                         "messages: it has the wrong type: got string, want an array",
		`{"messages":[{"role":"user","content":5}]}`:                                                               "messages.content: it has the wrong type: got number, want an array",
		`{"messages":[{"role":"user","content":[{"type":"search_result"}]}]}`:                                      "text, image, document and tool_result can be kept",
		`{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64"}}]}]}`:                "text and content can be kept",
		`{"messages":[{"role":"user","content":[{"type":"document","citations":{"enabled":true}}]}]}`:              "no parts of documents are cited",
		`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file"}}]}]}`:                     "want base64 or url",
		`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}`:           "only text can be kept",
		`{"messages":[{"role":"assistant","content":[{"type":"server_tool_use"}]},{"role":"user","content":"x"}]}`: "text, thinking and tool_use can be kept",
	} {
		w := asks("/v1/messages", body, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the runtime was asked", body) })
		var e struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != 400 || e.Type != "error" || e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, says) {
			t.Errorf("%s: got %d %s, want a 400 with %q", body, w.Code, w.Body, says)
		}
	}
}

func TestAnswer(t *testing.T) {
	w := asks("/v1/messages", hello, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != pathChat || r.ContentLength <= 0 || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("the runtime is asked %s with %d bytes and %v", r.URL, r.ContentLength, r.Header)
		}
		w.Header().Set("Content-Length", "7")
		w.Header().Set("X-Kept", "yes")
		_, _ = io.WriteString(w, answer)
		_ = http.NewResponseController(w).Flush()
	})
	want := `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"a\u003cb"},` +
		`{"type":"tool_use","id":"c1","name":"f","input":{"n":12345678901234567890}},{"type":"tool_use","id":"c2","name":"g","input":{}}],` +
		`"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":8,"output_tokens":4}}`
	if w.Code != 200 || w.Body.String() != want || w.Header().Get("X-Kept") != "yes" {
		t.Errorf("got %d %v\n%s\nwant\n%s", w.Code, w.Header(), w.Body, want)
	}
	w = asks("/v1/messages/count_tokens", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if got := string(raw); !strings.Contains(got, `"max_tokens":1`) || strings.Contains(got, "stream") {
			t.Errorf("the runtime is asked %s", got)
		}
		_, _ = io.WriteString(w, answer)
	})
	if w.Body.String() != `{"input_tokens":10}` {
		t.Errorf("the number of tokens: %s", w.Body)
	}
	// A prompt beyond the context has a number too, unless the runtime has counted only a part. Other refusals are
	// passed on.
	for _, tt := range []struct{ path, says, want string }{
		{"/v1/messages/count_tokens", "the prompt has 900 tokens. This model's maximum context length is 256 tokens", `{"input_tokens":900}`},
		{"/v1/messages/count_tokens", "the text has at least 900 tokens", `"message":"prompt is too long: 900 tokens`},
		{"/v1/messages", "the prompt has 900 tokens", `"message":"prompt is too long: 900 tokens`},
	} {
		w := asks(tt.path, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"code":"context_length_exceeded","n_prompt_tokens":900,"n_ctx":256}}`, tt.says)
		})
		if counts := tt.want[:2] == `{"`; w.Code == 200 != counts || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s, %s: got %d %s", tt.path, tt.says, w.Code, w.Body)
		}
	}
	for finish, want := range map[string]string{`"length"`: `"max_tokens","stop_sequence":null`, `"stop"`: `"end_turn","stop_sequence":null`, `"stop","stop_reason":"x"`: `"stop_sequence","stop_sequence":"x"`,
		`"stop","stop_reason":151645`: `"end_turn","stop_sequence":null`, `"content_filter"`: `"refusal","stop_sequence":null`} {
		w := asks("/v1/messages", hello, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"a"},"finish_reason":`+finish+`}]}`)
		})
		if !strings.Contains(w.Body.String(), `"stop_reason":`+want) {
			t.Errorf("finish_reason %s: got %s, want %s", finish, w.Body, want)
		}
	}
}

func TestFailures(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"OpenAI's shape", `{"error":{"message":"too hot","type":"invalid_request_error","param":"temperature","code":null}}`, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"too hot"}}`},
		{"with a code", `{"error":{"message":"busy","code":"hold_full"}}`, 429, `{"type":"error","error":{"type":"rate_limit_error","message":"busy","code":"hold_full"}}`},
		{"Anthropic's own", `{"type":"error","error":{"type":"overloaded_error","message":"later"}}`, 503, `{"type":"error","error":{"type":"overloaded_error","message":"later"}}`},
		{"a text", `oh no`, 500, `{"type":"error","error":{"type":"api_error","message":"the runtime failed"}}`},
		{"no completion", `{"object":"list"}`, 200, `{"type":"error","error":{"type":"api_error","message":"the runtime answered with something that is no chat completion","code":"runtime_failed"}}`},
	} {
		w := asks("/v1/messages", hello, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
		})
		want := tc.status
		if want == 200 {
			want = 502
		}
		if got := strings.TrimSpace(w.Body.String()); w.Code != want || got != tc.want || w.Header().Get("Retry-After") != "3" {
			t.Errorf("%s: got %d %s, want %d %s", tc.name, w.Code, got, want, tc.want)
		}
	}
	if w := asks("/v1/completions", "{", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "as it is") }); w.Body.String() != "as it is" {
		t.Errorf("another path: %s", w.Body)
	}
}

// chunks is a complete stream of chat completions with every kind of content.
const chunks = ": waiting\n\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"reasoning_content":"hm"}}]}` + "\n\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"content":"a"}}]}` + "\r\n\r\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"content":"b"}}]}` + "\n\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":""}}]}}]}` + "\n\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}` + "\n\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"{}"}}]}}]}` + "\n\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n" +
	`data: {"id":"chatcmpl-1","model":"m","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}` + "\n\n" +
	"data: [DONE]\n\n"

const asMessage = pingMessage + `event: message_start
data: {"message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}},"type":"message_start"}

event: content_block_start
data: {"content_block":{"type":"thinking","thinking":"","signature":""},"index":0,"type":"content_block_start"}

event: content_block_delta
data: {"delta":{"thinking":"hm","type":"thinking_delta"},"index":0,"type":"content_block_delta"}

event: content_block_stop
data: {"index":0,"type":"content_block_stop"}

event: content_block_start
data: {"content_block":{"type":"text","text":""},"index":1,"type":"content_block_start"}

event: content_block_delta
data: {"delta":{"text":"a","type":"text_delta"},"index":1,"type":"content_block_delta"}

event: content_block_delta
data: {"delta":{"text":"b","type":"text_delta"},"index":1,"type":"content_block_delta"}

event: content_block_stop
data: {"index":1,"type":"content_block_stop"}

event: content_block_start
data: {"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}},"index":2,"type":"content_block_start"}

event: content_block_delta
data: {"delta":{"partial_json":"{\"a\":","type":"input_json_delta"},"index":2,"type":"content_block_delta"}

event: content_block_delta
data: {"delta":{"partial_json":"1}","type":"input_json_delta"},"index":2,"type":"content_block_delta"}

event: content_block_stop
data: {"index":2,"type":"content_block_stop"}

event: content_block_start
data: {"content_block":{"type":"tool_use","id":"c2","name":"g","input":{}},"index":3,"type":"content_block_start"}

event: content_block_delta
data: {"delta":{"partial_json":"{}","type":"input_json_delta"},"index":3,"type":"content_block_delta"}

event: content_block_stop
data: {"index":3,"type":"content_block_stop"}

event: message_delta
data: {"delta":{"stop_reason":"tool_use","stop_sequence":null},"type":"message_delta","usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":6}}

event: message_stop
data: {"type":"message_stop"}

`

// streams sends parts of a stream.
func streams(parts ...string) *httptest.ResponseRecorder {
	return asks("/v1/messages", hello, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// TestStream checks a stream as a whole, and in two parts, cut at each byte.
func TestStream(t *testing.T) {
	if diff := cmp.Diff(asMessage, streams(chunks).Body.String()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	for at := range chunks {
		if got := streams(chunks[:at], chunks[at:]).Body.String(); got != asMessage {
			t.Fatalf("cut at %d: got\n%s", at, got)
		}
	}
}

// TestCutStream checks that a truncated stream ends with an error and not as a complete message.
func TestCutStream(t *testing.T) {
	end := strings.Index(chunks, "[DONE]") + len("[DONE]")
	for at := range end {
		got := streams(chunks[:at]).Body.String()
		if strings.Contains(got, "message_stop") || strings.Count(got, "event: error\n") != 1 || !strings.HasSuffix(got, "\n\n") {
			t.Fatalf("cut at %d: got\n%s", at, got)
		}
	}
	if got := streams(chunks[:end]).Body.String(); got != asMessage {
		t.Errorf("without the last line's end: got\n%s", got)
	}
	for name, last := range map[string]string{
		"an error of the runtime's":        `data: {"error":{"message":"out of memory","code":500}}` + "\n\n",
		"an event that is no chunk":        "data: nothing\n\n",
		"back to a call that had ended":    `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}}]}` + "\n\n",
		"an end that does not say why":     "data: [DONE]\n\n",
		"a line that does not fit in":      "data: " + strings.Repeat("x", maxLine) + "\n\n",
		"a line that does, and never ends": "data: x",
	} {
		head := chunks[:strings.Index(chunks, `data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{},"finish_reason"`)]
		got := streams(head, last, "data: [DONE]\n\n").Body.String()
		if strings.Contains(got, "message_stop") || strings.Count(got, "event: error\n") != 1 {
			t.Errorf("%s: got\n%.2000s", name, got)
		}
	}
}

// TestAborted checks that the client's connection is aborted if the handler aborts an answer.
func TestAborted(t *testing.T) {
	defer func() {
		if r := recover(); r != http.ErrAbortHandler {
			t.Errorf("got %v", r)
		}
	}()
	asks("/v1/messages", hello, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":`)
		panic(http.ErrAbortHandler)
	})
}

// FuzzRequest checks that an accepted request becomes a JSON object with messages, and that a refusal names the
// client's mistake.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(hello), false)
	f.Add([]byte(`{"system":[],"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]}],"tools":[{}],"stream":null}`), true)
	f.Fuzz(func(t *testing.T, body []byte, count bool) {
		path := "/v1/messages"
		if count {
			path = pathCount
		}
		got, _, err := tagging.translate(path, body)
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Status != http.StatusBadRequest || e.Message == "" {
				t.Fatalf("got %v", err)
			}
			return
		}
		var o struct{ Messages []struct{ Role string } }
		if err := json.Unmarshal(got, &o); err != nil || len(o.Messages) == 0 {
			t.Fatalf("made %s of it: %v", got, err)
		}
	})
}

// messageShape is the shape of Anthropic's stream.
var messageShape = shape{style: api.StreamMessages, events: func(out *output) events { return newMessageEvents(out, false) }}

// FuzzStream checks that the output does not depend on how a stream is cut into parts, and that a complete message
// has one end and no error.
func FuzzStream(f *testing.F) {
	f.Add([]byte(chunks), 5)
	f.Add([]byte("data: {\"error\":{}}\n\ndata: [DONE]\n\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		whole, parts := &bytes.Buffer{}, &bytes.Buffer{}
		one, many := newStream(whole, messageShape, nil), newStream(parts, messageShape, nil)
		_, _ = one.Write(in)
		one.close()
		size = max(1, size%64)
		for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			_, _ = many.Write(rest[:min(size, len(rest))])
		}
		many.close()
		if !bytes.Equal(whole.Bytes(), parts.Bytes()) {
			t.Fatalf("as a whole\n%s\nin parts of %d\n%s", whole, size, parts)
		}
		ends, errs := bytes.Count(whole.Bytes(), []byte("\nevent: message_stop\n")), bytes.Count(whole.Bytes(), []byte("event: error\n"))
		if ends > 1 || ends+errs == 0 {
			t.Fatalf("%d ends and %d errors:\n%s", ends, errs, whole)
		}
	})
}

func TestTooLong(t *testing.T) {
	for _, tc := range []struct{ numbers, want string }{
		{`,"n_prompt_tokens":600,"n_ctx":512`, "prompt is too long: 600 tokens > 511 maximum"},
		{`,"n_prompt_tokens":512,"n_ctx":512`, "prompt is too long: 512 tokens > 511 maximum"},
		{`,"n_prompt_tokens":500,"max_tokens":20,"n_ctx":512`, "input length and `max_tokens` exceed context limit: 500 + 20 > 512, decrease input length or `max_tokens` and try again"},
		{`,"n_ctx":512`, "long"},
		{`,"n_prompt_tokens":500,"max_tokens":12,"n_ctx":512`, "long"},
		{``, "long"},
	} {
		w := asks("/v1/messages", hello, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"%s}}`, tc.numbers)
		})
		var e struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != 400 || e.Type != "error" || e.Error.Type != "invalid_request_error" || e.Error.Message != tc.want {
			t.Errorf("%s: got %d %s, want %q", tc.numbers, w.Code, w.Body, tc.want)
		}
	}
}
