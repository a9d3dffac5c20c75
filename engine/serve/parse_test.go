package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestBadBodies(t *testing.T) {
	for _, test := range []struct{ body, param, want string }{
		{"", "", "empty"},
		{"hello", "", "not JSON"},
		{`{"model":"m","messages":[{"ro`, "", "truncated"},
		{`{"a":1}{"b":2}`, "", "not JSON"},
		{"{\"model\":\"\xff\"}", "", "UTF-8"},
		{`[]`, "", "a JSON array: want an object"},
		{`"x"`, "", "a JSON string: want an object"},
		{`{"model":7}`, "model", "model is a JSON number: want a string"},
		{`{"temperature":"hot"}`, "temperature", "temperature is a JSON string: want a number in range"},
		{`{"temperature":1e400}`, "temperature", "want a number in range"},
		{`{"max_tokens":1.5}`, "max_tokens", "want an integer in range"},
		{`{"max_tokens":99999999999999999999}`, "max_tokens", "want an integer in range"},
		{`{"stream":"yes"}`, "stream", "want true or false"},
		{`{"stop":5}`, "stop", "stop is a JSON number: want a string or an array of strings"},
		{`{"stop":["a",5]}`, "stop", "stop is a JSON array: want a string or an array of strings"},
		{`{"stream_options":{"include_usage":1}}`, "stream_options.include_usage", "want true or false"},
		{`{"stream_options":true}`, "stream_options", "want an object"},
		{`{"logit_bias":[1]}`, "logit_bias", "want an object of token ids and numbers"},
		{`{"logit_bias":{"x":1}}`, "logit_bias", "want an integer"},
		{`{"modalities":5}`, "modalities", "want an array"},
		{`{"messages":"hi"}`, "messages", "want an array"},
		{`{"messages":[{"role":"user","content":"a"},{"role":1}]}`, "messages.role", "want a string"},
		{`{"messages":[{"role":"user","content":{"text":"a"}}]}`, "messages.content", "want a string or an array of text parts"},
		{`{"messages":[{"role":"user","content":[1]}]}`, "messages.content", "want a string or an array of text parts"},
		{`{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]}`, "messages.content", `part 0 has type "input_audio"`},
		{`{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages.content", "part 0 has no text"},
	} {
		var c chatRequest
		err := parse([]byte(test.body), &c)
		var known *Error
		if !errors.As(err, &known) || known.Status != http.StatusBadRequest || known.Param != test.param || !strings.Contains(known.Message, test.want) {
			t.Errorf("%s: got %+v, want 400 for %q with %q", test.body, err, test.param, test.want)
		}
	}
}

func TestBadVectorOptions(t *testing.T) {
	var known *Error
	for _, v := range []any{&embeddingRequest{}, &scoreRequest{}, &rerankRequest{}} {
		if err := parse([]byte(`{"pooling":5}`), v); !errors.As(err, &known) || known.Param != "pooling" {
			t.Errorf("%T: got %v, want an error for pooling", v, err)
		}
	}
}

func TestUnions(t *testing.T) {
	var c completionRequest
	for body, want := range map[string]prompts{
		`{"prompt":"a"}`:              {{text: "a"}},
		`{"prompt":["a","b"]}`:        {{text: "a"}, {text: "b"}},
		`{"prompt":[1,2]}`:            {{tokens: []int32{1, 2}}},
		`{"prompt":[[1,2],[3],[]]}`:   {{tokens: []int32{1, 2}}, {tokens: []int32{3}}, {tokens: []int32{}}},
		`{"prompt":null}`:             nil,
		`{"prompt":"x","unknown":[]}`: {{text: "x"}},
	} {
		if err := parse([]byte(body), &c); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if diff := cmp.Diff(want, c.Prompt, cmp.AllowUnexported(textOrTokens{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	for _, body := range []string{`{"prompt":7}`, `{"prompt":{}}`, `{"prompt":["a",1]}`, `{"prompt":[1.5]}`, `{"prompt":[[1],"a"]}`, `{"prompt":[99999999999]}`} {
		var known *Error
		if err := parse([]byte(body), &c); !errors.As(err, &known) || known.Param != "prompt" {
			t.Errorf("%s: %v", body, err)
		}
	}
	var r chatRequest
	body := `{"stop":"x","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":null}],"seed":null,"n":null}`
	if err := parse([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	if r.Messages[0].Content.text != "a\nb" || r.Messages[1].Content.text != "" || len(r.Stop) != 1 || r.Stop[0] != "x" || r.Seed != nil {
		t.Errorf("parsed %+v", r)
	}
}

func TestOptions(t *testing.T) {
	for body, param := range map[string]string{
		`{"max_tokens":0}`: "max_tokens",
		`{"max_completion_tokens":-1,"max_tokens":1}`: "max_completion_tokens",
		`{"n":0}`:                  "n",
		`{"top_k":-2}`:             "top_k",
		`{"repetition_penalty":0}`: "repetition_penalty",
		`{"stream_options":{"include_usage":true}}`: "stream_options",
		`{"best_of":3}`:                                                                                  "best_of",
		`{"response_format":{"type":"json"}}`:                                                            "response_format.type",
		`{"response_format":{"type":"json_schema"}}`:                                                     "response_format.json_schema.schema",
		`{"response_format":{"type":"json_object"},"guided_regex":"a"}`:                                  "guided_regex",
		`{"structured_outputs":{"choice":["a"],"json_object":true}}`:                                     "structured_outputs.json_object",
		`{"structured_outputs":{"structural_tag":{}}}`:                                                   "structured_outputs.structural_tag",
		`{"functions":[{}]}`:                                                                             "functions",
		`{"tools":{}}`:                                                                                   "tools",
		`{"tools":[{"type":"web"}]}`:                                                                     "tools.type",
		`{"tools":[{"type":"function","function":{"name":"a b"}}]}`:                                      "tools.function.name",
		`{"tools":[{"type":"function","function":{"name":"f","parameters":true}}]}`:                      "tools.function.parameters",
		`{"tools":[{"type":"function","function":{"name":"f","parameters":"x"}}]}`:                       "tools.function.parameters",
		`{"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}]}`:         "tools.function.parameters",
		`{"tools":[{"type":"function","function":{"name":"f","parameters":{"type":["array","null"]}}}]}`: "tools.function.parameters",
		`{"tools":[` + tool("f") + `,` + tool("f") + `]}`:                                                "tools.function.name",
		`{"tools":[` + tool("f") + `],"tool_choice":"maybe"}`:                                            "tool_choice",
		`{"tools":[` + tool("f") + `],"tool_choice":{"type":"function","function":{"name":"g"}}}`:        "tool_choice",
		`{"tools":[` + tool("f") + `],"tool_choice":{"type":"function","function":{"name":"f"}}}`:        "",
		`{"tools":[` + tool("f") + `],"tool_choice":"required"}`:                                         "",
		`{"prompt_logprobs":21}`:                                                                         "prompt_logprobs",
		`{"prompt_logprobs":1,"stream":true}`:                                                            "prompt_logprobs",
		`{"priority":9999999999}`:                                                                        "priority",
		`{"cache_salt":""}`:                                                                              "cache_salt",
		`{"bad_words":["x"]}`:                                                                            "bad_words",
		`{"top_logprobs":3}`:                                                                             "top_logprobs",
		`{"tool_choice":"required"}`:                                                                     "tool_choice",
		`{"tool_choice":{"type":"function"}}`:                                                            "tool_choice",
		`{"tool_choice":"auto","best_of":1,"top_k":-1}`:                                                  "",
		`{"response_format":{"type":"text"},"top_p":0}`:                                                  "",
		`{"max_tokens":null,"max_completion_tokens":12}`:                                                 "",
	} {
		var c chatRequest
		if err := parse([]byte(body), &c); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		r, err := c.request()
		if err == nil {
			_, err = c.toolUse()
		}
		if err == nil {
			_, err = c.constraint()
		}
		var known *Error
		if param == "" && err != nil || param != "" && (!errors.As(err, &known) || known.Param != param) {
			t.Errorf("%s: got %v, want an error for %q", body, err, param)
		}
		if strings.Contains(body, "12") && r.MaxTokens != 12 {
			t.Errorf("%s: at most %d tokens, want 12", body, r.MaxTokens)
		}
		if strings.Contains(body, "top_p") && r.Sampling.TopK != 1 {
			t.Errorf("%s: top_p 0 must leave one token", body)
		}
	}
}

// tool returns a tool without parameters.
func tool(name string) string {
	return `{"type":"function","function":{"name":"` + name + `"}}`
}

// FuzzParse checks that no body makes the parser panic or fail with anything but a
// 400 in valid JSON, and that accepted requests can be used.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"stop":["a"],"logit_bias":{"5":1},"n":2,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":[{"type":"text","text":"x"}],"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}],"tools":[{}],"tool_choice":"auto"}`,
		`{"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}},"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		`{"structured_outputs":{"regex":"a+"},"guided_choice":["a"]}`, `{"grammar":"root ::= \"a\""}`,
		`{"prompt":[[1,2],[3]],"echo":true,"logprobs":2,"max_tokens":0,"seed":-1,"temperature":0.5,"stop":"x"}`,
		`{"prompt":["a","b"],"suffix":"s","best_of":2,"logit_bias":{"-1":null}}`,
		`{"stop":null,"messages":null,"prompt":null}`, `[[[[`, `{"a":"\ud800"}`, "\x00", `null`, `{"content":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		check := func(err error) {
			if err == nil {
				return
			}
			var known *Error
			if !errors.As(err, &known) || known.Status != http.StatusBadRequest {
				t.Fatalf("%q: %v, want a 400", body, err)
			}
			if wire, err := known.MarshalJSON(); err != nil || !json.Valid(wire) || !utf8.ValidString(known.Message) {
				t.Fatalf("%q: error body %s, %v", body, wire, err)
			}
		}
		var c chatRequest
		err := parse(body, &c)
		check(err)
		if err == nil {
			_, err := c.request()
			check(err)
			_, err = c.turns()
			check(err)
			w, err := c.constraint()
			check(err)
			if err == nil && w != nil {
				_, err := w.form(t.Context(), nil)
				check(formError(w.param, err))
			}
			_, err = c.toolUse()
			check(err)
		}
		var p completionRequest
		err = parse(body, &p)
		check(err)
		if err == nil {
			_, err := p.request()
			check(err)
		}
	})
}

// FuzzString compares the JSON strings written here with encoding/json's reading of them.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", "plain", "q\"b\\s/", "\x00\x1f\n\r\t\x7f", "é€𝄞", "a\xffb\xc3", "\u2028<&>", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		wire := appendString(nil, s)
		if err := json.Unmarshal(wire, &got); err != nil {
			t.Fatalf("%q is written as %s: %v", s, wire, err)
		}
		if want := string([]rune(s)); got != want {
			t.Errorf("%q is read as %q, want %q", s, got, want)
		}
	})
}

// TestAmbiguousBodies checks that a body that a server in front may read differently is refused.
func TestAmbiguousBodies(t *testing.T) {
	for _, body := range []string{`{"model":"a","model":"b"}`, `{"Model":"a"}`, `{"model":"a","mod\u0065l":"b"}`, `{"\u017ftream":true}`, `{"Priority":-5}`, `{"cache_salt":"a","cache_salt":"b"}`} {
		var c chatRequest
		if err := parse([]byte(body), &c); asError(err).Status != http.StatusBadRequest {
			t.Errorf("%s: got %v, want a 400", body, err)
		}
	}
}
