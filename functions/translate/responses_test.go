package translate

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

func TestFromResponses(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"a text", `{"model":"m","input":"hi","store":false,"max_output_tokens":9}`, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`},
		{"instructions and items", `{"instructions":"i","input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:x","detail":"low"}]}]}`,
			`{"messages":[{"role":"system","content":"i"},{"role":"developer","content":"d"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x","detail":"low"}}]}]}`},
		{"turns of the assistant's", `{"input":[{"role":"user","content":"q"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]},{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":"b"},{"type":"message","role":"assistant","content":"c"}]}`,
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"1"},{"role":"tool","tool_call_id":"c2","content":"2"},{"role":"assistant","content":"b"},{"role":"assistant","content":"c"}]}`},
		{"a call alone", `{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}`, `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`},
		{"calls without arguments, and cut off", `{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":""},{"type":"function_call","call_id":"d","name":"f","arguments":"{\"x\":"}]}`,
			`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"f","arguments":"{\"unfinished\":\"{\\\"x\\\":\"}"}}]}]}`},
		{"tools and a schema", `{"input":"x","tools":[{"type":"function","name":"f","description":null,"parameters":{"type":"object"},"strict":true}],"tool_choice":{"type":"function","name":"f"},"text":{"verbosity":"medium","format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}}}`,
			`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"},"strict":true}}],"tool_choice":{"type":"function","function":{"name":"f"}},"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}}}`},
		{"the rest", `{"input":"x","stream":true,"stream_options":{"include_obfuscation":false},"metadata":{"a":"b"},"reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content"],"truncation":"disabled","tool_choice":"auto","parallel_tool_calls":true,"prompt_cache_key":"k","service_tier":"auto","min_p":0.1,"previous_response_id":null,"text":{"format":{"type":"json_object"}}}`,
			`{"messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true},"service_tier":"auto","min_p":0.1,"response_format":{"type":"json_object"},"reasoning_effort":"low"}`},
		{"tools in a namespace", `{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"f","namespace":"a","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"o"}],"tools":[{"type":"function","name":"f"},{"type":"namespace","name":"a","description":"d","tools":[{"type":"function","name":"f","strict":false},{"type":"function","name":"g"}]}],"tool_choice":{"type":"function","name":"g","namespace":"a"}}`,
			`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"a__f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"o"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"a__f","strict":false}},{"type":"function","function":{"name":"a__g"}}],"tool_choice":{"type":"function","function":{"name":"a__g"}}}`},
		{"some of the tools, and scores", `{"input":[{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":"x"}],"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]},"include":["message.output_text.logprobs"]}`,
			`{"messages":[{"role":"assistant","content":"no"},{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"g"}}],"tool_choice":"required","logprobs":true}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := tagging.translate("/v1/responses", []byte(tc.in))
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

func TestRefusedResponses(t *testing.T) {
	for body, says := range map[string]string{
		`{}`: "input is empty", `{"input":[]}`: "input is empty", `{"input":7}`: "wrong type",
		`{"input":"x","store":true}`:                         "store can't be kept",
		`{"input":"x","background":true}`:                    "background can't be kept",
		`{"input":"x","conversation":"c"}`:                   "conversation can't be kept",
		`{"input":"x","max_output_tokens":0}`:                "max_output_tokens is 0",
		`{"input":"x","text":{"format":{"type":"grammar"}}}`: "text.format.type",
		`{"input":"x","tools":[{"type":"function","name":"a__f"},{"type":"namespace","name":"a","tools":[{"type":"function","name":"f"}]}]}`: "two tools are called",
		`{"input":"x","tools":[{"type":"namespace","name":"a","tools":[{"type":"custom","name":"f"}]}]}`:                                     "tools[0].tools[0] is of the type",
		`{"input":"x","tools":[{"type":"custom","name":"f"}]}`:                                                                               "is a custom tool, whose input is free text",
		`{"input":"x","tools":[{"type":"mcp"}]}`:                                                                                             "which OpenAI runs itself",
		`{"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"x"}}`:                                                  "tool_choice is",
		`{"input":[{"role":"robot","content":"x"}]}`:                                                                                         "want user, assistant",
		`{"input":[{"role":"assistant","content":[{"type":"input_audio"}]}]}`:                                                                "only text can be kept",
		`{"input":"x","moderation":{}}`:                                                                                                      "moderation can't be kept",
		`{"input":"x","text":{"verbosity":"low"}}`:                                                                                           "text.verbosity is",
		`{"input":"x","reasoning":{"summary":"detailed"}}`:                                                                                   "reasoning.summary is",
		`{"input":"x","reasoning":{"mode":"pro"}}`:                                                                                           "reasoning.mode is",
		`{"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"h"}]}}`: "allows none",
		`{"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp"}]}}`:                 "only functions",
		`{"input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`:                                                                         "files are not stored here",
		`{"input":[{"type":"computer_call"}]}`: "can be kept",
	} {
		w := asks("/v1/responses", body, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the runtime was asked", body) })
		var e struct {
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != 400 || e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, says) {
			t.Errorf("%s: got %d %s, want a 400 with %q", body, w.Code, w.Body, says)
		}
	}
}

// created matches times, which differ in each run.
var created = regexp.MustCompile(`"(created|completed)_at":\d+`)

func TestResponse(t *testing.T) {
	w := asks("/v1/responses", `{"model":"m","input":"hi","temperature":0.5}`, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	want := `{"id":"resp_1","object":"response",TIME,TIME,"status":"completed","background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":"m","output":[` +
		`{"id":"rs_1","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},` +
		`{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a\u003cb","annotations":[],"logprobs":[]}]},` +
		`{"id":"fc_c1","type":"function_call","status":"completed","call_id":"c1","name":"f","arguments":"{\"n\":12345678901234567890}"},{"id":"fc_c2","type":"function_call","status":"completed","call_id":"c2","name":"g","arguments":""}],` +
		`"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":false,"temperature":0.5,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled",` +
		`"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":14},"user":null,"metadata":{},"top_logprobs":0,"presence_penalty":0,"frequency_penalty":0,"max_tool_calls":null,"prompt_cache_key":null,"safety_identifier":null,"service_tier":"default"}`
	if got := created.ReplaceAllString(w.Body.String(), "TIME"); w.Code != 200 || got != want {
		t.Errorf("got %d\n%s\nwant\n%s", w.Code, got, want)
	}
	w = asks("/v1/responses", `{"input":"hi","metadata":{"a":"b"},"prompt_cache_key":"k","safety_identifier":"s","max_tool_calls":3,"text":{"verbosity":"medium"},"tools":[{"type":"function","name":"f"}]}`, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	for _, want := range []string{`"metadata":{"a":"b"}`, `"prompt_cache_key":"k"`, `"safety_identifier":"s"`, `"max_tool_calls":3`, `"text":{"format":{"type":"text"},"verbosity":"medium"}`,
		`"tools":[{"description":null,"name":"f","parameters":{},"strict":false,"type":"function"}]`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("told again: %s lacks %s", w.Body, want)
		}
	}
	for asked, answered := range map[string]string{ // by another name, the field is the client's
		`{"error":{"message":"max_tokens is 900: want less","type":"t","param":"max_tokens","code":null}}`: `{"error":{"message":"max_output_tokens is 900: want less","type":"t","param":"max_output_tokens","code":null}}`,
		`{"error":{"message":"too long","param":"messages","code":"c"}}`:                                   `{"error":{"code":"c","message":"too long","param":"input"}}`,
		`{"error":{"message":"top_p is 2","param":"top_p"}}`:                                               `{"error":{"message":"top_p is 2","param":"top_p"}}`,
	} {
		w := asks("/v1/responses", `{"input":"hi"}`, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, asked)
		})
		var got, want any
		if json.Unmarshal(w.Body.Bytes(), &got) != nil || json.Unmarshal([]byte(answered), &want) != nil || !cmp.Equal(got, want) || w.Code != 400 {
			t.Errorf("%s: got %d %s, want %s", asked, w.Code, w.Body, answered)
		}
	}
	w = asks("/v1/responses", `{"input":"hi"}`, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(429)
		_, _ = io.WriteString(w, `{"error":{"message":"busy","type":"rate_limit_error","param":null,"code":"hold_full"}}`)
	})
	if got := w.Body.String(); w.Code != 429 || got != `{"error":{"message":"busy","type":"rate_limit_error","param":null,"code":"hold_full"}}`+"\n" {
		t.Errorf("a failure: got %d %s, want it as it was", w.Code, got)
	}
}

// responseStream sends parts of a stream, and returns the client's bytes without times.
func responseStream(parts ...string) string {
	w := asks("/v1/responses", `{"model":"m","input":"hi","stream":true}`, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
		}
	})
	return created.ReplaceAllString(w.Body.String(), "TIME")
}

// TestResponseStream checks the events and their numbers, which do not depend on how the stream is cut into parts. A
// truncated stream has not ended.
func TestResponseStream(t *testing.T) {
	whole := responseStream(chunks)
	var names []string
	for i, line := range strings.Split(strings.TrimSpace(strings.ReplaceAll(whole, "TIME", `"created_at":0`)), "\n\n") {
		if strings.HasPrefix(line, ":") {
			continue
		}
		name, data, _ := strings.Cut(line, "\ndata: ")
		var e struct {
			Type   string
			Number int `json:"sequence_number"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || "event: "+e.Type != name || e.Number != i-1 {
			t.Errorf("event %d: %s (%v)", i, line, err)
		}
		names = append(names, strings.TrimPrefix(e.Type, "response."))
	}
	want := strings.Fields(`created in_progress output_item.added content_part.added reasoning_text.delta reasoning_text.done content_part.done output_item.done
		output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done
		output_item.added function_call_arguments.delta function_call_arguments.delta function_call_arguments.done output_item.done
		output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed`)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for at := range chunks {
		if got := responseStream(chunks[:at], chunks[at:]); got != whole {
			t.Fatalf("in two parts, at %d: got\n%s", at, got)
		}
		if at >= strings.Index(chunks, "[DONE]")+len("[DONE]") {
			continue
		}
		if got := responseStream(chunks[:at]); strings.Contains(got, "response.completed") || strings.Contains(got, "response.incomplete") || strings.Count(got, "event: error\n") != 1 {
			t.Fatalf("cut off at %d: got\n%s", at, got)
		}
	}
	if got := responseStream(`data: {"id":"chatcmpl-2","choices":[{"delta":{},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n"); !strings.Contains(got, `event: response.incomplete`) || !strings.Contains(got, `"output":[{"id":"msg_2_0"`) {
		t.Errorf("an answer of nothing: got\n%s", got)
	}
}

// FuzzFromResponses checks that an accepted request becomes a JSON object with messages, and that a refusal names the
// client's mistake.
func FuzzFromResponses(f *testing.F) {
	f.Add([]byte(`{"input":"x","tools":[{"type":"function"}],"text":{"format":{"type":"text"}}}`))
	f.Add([]byte(`{"input":[{"role":"user","content":"x"},{"type":"reasoning"},{"type":"function_call"},{"type":"function_call_output","output":"x"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, to, err := tagging.translate("/v1/responses", body)
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
		told, is := to.answer([]byte(answer))
		if _, err := json.Marshal(told); err != nil || !is {
			t.Fatal(is, err)
		}
	})
}

// FuzzResponseStream checks that the output does not depend on how a stream is cut into parts, and that exactly one
// event ends it: the end of the answer or an error.
func FuzzResponseStream(f *testing.F) {
	f.Add([]byte(chunks), 5)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		whole, parts := httptest.NewRecorder(), httptest.NewRecorder()
		to := shape{style: api.StreamResponses, events: func(out *output) events { return newResponseEvents(out, newResponse(&request{})) }}
		one, many := newStream(whole, to, nil), newStream(parts, to, nil)
		_, _ = one.Write(in)
		one.close()
		size = max(1, size%64)
		for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			_, _ = many.Write(rest[:min(size, len(rest))])
		}
		many.close()
		a, b := created.ReplaceAllString(whole.Body.String(), ""), created.ReplaceAllString(parts.Body.String(), "")
		if a != b {
			t.Fatalf("as a whole\n%s\nin parts of %d\n%s", a, size, b)
		}
		ends := strings.Count("\n"+a, "\nevent: response.completed\n") + strings.Count("\n"+a, "\nevent: response.incomplete\n")
		if errs := strings.Count("\n"+a, "\nevent: error\n"); ends+errs != 1 {
			t.Fatalf("%d ends and %d errors:\n%s", ends, errs, a)
		}
	})
}

// TestResponseScores checks that each token's scores are in the event of its text, even if the text comes later or
// came before.
func TestResponseScores(t *testing.T) {
	const a, b, c = `{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]}`, `{"token":"b","logprob":-2,"bytes":[98],"top_logprobs":[]}`, `{"token":"<end>","logprob":-3,"bytes":[],"top_logprobs":[]}`
	got := responseStream(
		`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"content":""},"logprobs":{"content":[`+a+`]}}]}`+"\n\n",
		`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"content":"ab"},"logprobs":{"content":[`+b+`]}}]}`+"\n\n",
		`data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"content":""},"logprobs":{"content":[`+c+`]},"finish_reason":"stop"}]}`+"\n\n", "data: [DONE]\n\n")
	for what, want := range map[string]string{
		"the part":  `"delta":"ab","item_id":"msg_1_0","logprobs":[` + a + `,` + b + `]`,
		"the text":  `"logprobs":[` + a + `,` + b + `,` + c + `],"output_index":0,"sequence_number":5,"text":"ab"`,
		"the whole": `"text":"ab","annotations":[],"logprobs":[` + a + `,` + b + `,` + c + `]}`,
	} {
		got := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(got)
		if !strings.Contains(got, want) {
			t.Errorf("%s: want %s in\n%s", what, want, got)
		}
	}
	w := asks("/v1/responses", `{"input":"hi"}`, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"a"},"finish_reason":"stop","logprobs":{"content":[`+a+`]}}]}`)
	})
	if !strings.Contains(w.Body.String(), `"logprobs":[`+a+`]`) {
		t.Errorf("got %s", w.Body)
	}
}

func TestNamespaces(t *testing.T) {
	const body = `{"input":"hi","tools":[{"type":"namespace","name":"a","tools":[{"type":"function","name":"f"}]},{"type":"function","name":"g"}]`
	called := func(item json.RawMessage) [3]string {
		var c struct{ Type, Name, Namespace string }
		if err := json.Unmarshal(item, &c); err != nil {
			t.Fatal(err)
		}
		return [3]string{c.Type, c.Name, c.Namespace}
	}
	want := [][3]string{{"function_call", "f", "a"}, {"function_call", "g", ""}}
	var r struct{ Output []json.RawMessage }
	w := asks("/v1/responses", body+`}`, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"chatcmpl-1","choices":[{"message":{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"a__f","arguments":"{}"}},{"id":"c2","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`)
	})
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || len(r.Output) != 2 || called(r.Output[0]) != want[0] || called(r.Output[1]) != want[1] {
		t.Errorf("whole: %v, %s", err, w.Body)
	}
	w = asks("/v1/responses", body+`,"stream":true}`, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"id":"chatcmpl-1","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"a__f","arguments":"{}"}}]}}]}`+"\n\n"+
			`data: {"id":"chatcmpl-1","choices":[{"delta":{},"finish_reason":"tool_calls"}]}`+"\n\ndata: [DONE]\n\n")
	})
	n := 0
	for line := range strings.Lines(w.Body.String()) {
		var e struct {
			Type string
			Item json.RawMessage
		}
		if data, is := strings.CutPrefix(line, "data: "); is && json.Unmarshal([]byte(data), &e) == nil && strings.HasPrefix(e.Type, "response.output_item.") {
			n++
			if called(e.Item) != want[0] {
				t.Errorf("streamed: %s", line)
			}
		}
	}
	if n != 2 {
		t.Errorf("got %d events of items, want 2: %s", n, w.Body)
	}
}
