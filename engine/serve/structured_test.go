package serve_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/serve"
)

// say returns a user's message as JSON, with a text for the parrot to repeat.
func say(text, more string) string {
	said, _ := json.Marshal(text) // a string always can be
	return fmt.Sprintf(`{"model":"parrot","messages":[{"role":"user","content":%s}],"temperature":0%s}`, said, more)
}

// TestStructured requests all kinds of forms. The parrot repeats as much of its text as the form allows.
func TestStructured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, 0)
		const schema = `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`
		for _, test := range []struct{ said, more, want string }{
			{`{"a":1}`, `,"response_format":{"type":"json_object"}`, `{"a":1}`},
			{`{"a":1}`, `,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":` + schema + `}}`, `{"a":1}`},
			{`{"a":1}`, `,"guided_json":` + schema, `{"a":1}`},
			{`{"a":1}`, `,"guided_json":"` + strings.ReplaceAll(schema, `"`, `\"`) + `"`, `{"a":1}`},
			{`{"a":1}`, `,"structured_outputs":{"json":` + schema + `}`, `{"a":1}`},
			{`abc`, `,"guided_regex":"[a-c]{3}"`, `abc`},
			{`maybe`, `,"guided_choice":["maybe","no"]`, `maybe`},
			{`aab`, `,"grammar":"root ::= \"a\"* \"b\""`, `aab`},
			{`no`, `,"response_format":{"type":"text"}`, `no`},
			{`zzz`, `,"guided_regex":"q"`, `q`},
		} {
			got := decode(t, c.post("/v1/chat/completions", say(test.said, test.more))).Choices[0]
			if got.Message.Content != test.want || *got.FinishReason != "stop" {
				t.Errorf("%s: %q, %s; want %q, stop", test.more, got.Message.Content, *got.FinishReason, test.want)
			}
		}
		got := decode(t, c.post("/v1/completions", `{"prompt":"yes\n","temperature":0,"guided_choice":["yes","no"]}`)).Choices[0]
		if got.Text != "yes" {
			t.Errorf("a completion of a choice: %q", got.Text)
		}
	})
}

// TestStructuredBudget checks that a form that multiplies is a client's mistake, or costs no more than others. The
// error names the limit.
func TestStructuredBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, 0)
		var defs strings.Builder
		for i := range 40 {
			fmt.Fprintf(&defs, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
		}
		doubled := `,"guided_json":{"$ref":"#/$defs/d0","$defs":{` + defs.String() + `"d40":{"const":"x"}}}`
		if got := decode(t, c.post("/v1/chat/completions", say(`"x"`, doubled))).Choices[0].Message.Content; got != `"x"` {
			t.Errorf("allOf of two that are the same, 40 deep: %q", got)
		}
		var names, rules strings.Builder
		for i := range 1030 {
			fmt.Fprintf(&names, " | r%d", i)
			fmt.Fprintf(&rules, "\nr%d ::= [a-z]* \"%d\"", i, i)
		}
		alike := "root ::= " + names.String()[3:] + rules.String()
		for name, test := range map[string]struct{ field, source, want string }{
			"alternatives that begin alike":        {"grammar", alike, "places of it at once"},
			"alternatives that begin alike, later": {"grammar", `root ::= "ab" s` + strings.ReplaceAll("\n"+alike, "root ::=", "s ::="), "places of it at once"},
			"repetition":                           {"guided_grammar", `root ::= "a"{9999999}`, "too large"},
			"a regular expression":                 {"guided_regex", `((a{100}){100}){100}`, "repeat"},
		} {
			source, _ := json.Marshal(test.source) // a string always can be
			status, body := c.do("POST", "/v1/chat/completions", say("ab", fmt.Sprintf(`,"max_tokens":9,%q:%s`, test.field, source)))
			if status.StatusCode != 400 || !strings.Contains(body, test.want) {
				t.Errorf("%s: %d %s, want 400 with %q", name, status.StatusCode, body, test.want)
			}
		}
	})
}

// toolAnswer is an answer with calls.
type toolAnswer struct {
	Choices []struct {
		Message, Delta struct {
			Content   *string
			ToolCalls []struct {
				Index    int
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason *string `json:"finish_reason"`
	}
}

const weather = `,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}},{"type":"function","function":{"name":"time"}}]`

// TestToolWithoutParameters checks that a tool that declares no parameters is called with none.
func TestToolWithoutParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{ToolParser: "hermes"}, 0)
		for _, parameters := range []string{``, `,"parameters":null`, `,"parameters":{"type":"object","properties":{}}`} {
			tools := `,"tool_choice":"required","parallel_tool_calls":false,"tools":[{"type":"function","function":{"name":"time"` + parameters + `}}]`
			var got toolAnswer
			said := "<tool_call>\n{\"name\": \"time\", \"arguments\": {\"zone\":\"UTC\"}}\n</tool_call>"
			if err := json.Unmarshal([]byte(c.post("/v1/chat/completions", say(said, tools))), &got); err != nil {
				t.Fatal(err)
			}
			calls := got.Choices[0].Message.ToolCalls
			if len(calls) != 1 || calls[0].Function.Arguments != "{}" {
				t.Errorf("%q: calls %+v, want one with the arguments {}", parameters, calls)
			}
		}
	})
}

func TestTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{ToolParser: "hermes"}, 0)
		const call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Rome\"}}\n</tool_call>"
		const short = "<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call>"
		for _, test := range []struct {
			said, more, content, finish string
			calls                       []string
		}{
			{"hi", weather, "hi", "stop", nil},
			{"look " + call, weather, "look", "tool_calls", []string{`weather {"city":"Rome"}`}},
			{short + "\n" + short, weather, "", "tool_calls", []string{"time {}", "time {}"}},
			{short + "\n" + short, weather + `,"parallel_tool_calls":false`, "", "tool_calls", []string{"time {}"}},
			{call, weather + `,"tool_choice":"none"`, call, "stop", nil},
			{call, weather + `,"tool_choice":"required"`, "", "tool_calls", []string{`weather {"city":"Rome"}`}},
			{call, weather + `,"tool_choice":{"type":"function","function":{"name":"weather"}}`, "", "tool_calls", []string{`weather {"city":"Rome"}`}},
			{call, weather + `,"response_format":{"type":"json_object"}`, "", "tool_calls", []string{`weather {"city":"Rome"}`}},
			{`{"a":1}`, weather + `,"response_format":{"type":"json_object"}`, `{"a":1}`, "stop", nil},
		} {
			var whole toolAnswer
			if err := json.Unmarshal([]byte(c.post("/v1/chat/completions", say(test.said, test.more))), &whole); err != nil {
				t.Fatal(err)
			}
			m := whole.Choices[0].Message
			var calls []string
			for _, tc := range m.ToolCalls {
				if tc.Type != "function" || !strings.HasPrefix(tc.ID, "call_") {
					t.Errorf("%s: call %+v", test.more, tc)
				}
				calls = append(calls, tc.Function.Name+" "+tc.Function.Arguments)
			}
			content := ""
			if m.Content != nil {
				content = *m.Content
			}
			if diff := cmp.Diff([]any{test.content, test.finish, test.calls}, []any{content, *whole.Choices[0].FinishReason, calls}); diff != "" {
				t.Errorf("%q%s (-want +got):\n%s", test.said, test.more, diff)
			}
			if (m.Content == nil) != (test.content == "") {
				t.Errorf("%q%s: content is null: %v", test.said, test.more, m.Content == nil)
			}

			content, calls = "", nil
			finish := ""
			for _, frame := range frames(t, c.post("/v1/chat/completions", say(test.said, test.more+`,"stream":true`))) {
				var part toolAnswer
				if frame == "[DONE]" {
					continue
				}
				if err := json.Unmarshal([]byte(frame), &part); err != nil {
					t.Fatalf("%s: %v", frame, err)
				}
				d := part.Choices[0].Delta
				if d.Content != nil {
					content += *d.Content
				}
				for _, tc := range d.ToolCalls {
					if tc.ID != "" {
						calls = append(calls, tc.Function.Name+" ")
					}
					calls[tc.Index] += tc.Function.Arguments
				}
				if f := part.Choices[0].FinishReason; f != nil {
					finish = *f
				}
			}
			if diff := cmp.Diff([]any{test.content, test.finish, test.calls}, []any{content, finish, calls}); diff != "" {
				t.Errorf("streamed %q%s (-want +got):\n%s", test.said, test.more, diff)
			}
		}
	})
}

// TestForcedCall checks that a model that would answer something else makes a call.
func TestForcedCall(t *testing.T) {
	for _, format := range []string{"qwen3_coder", "hermes", "mistral", "llama3_json", "json"} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, serve.Config{ToolParser: format}, 0)
			tools := `,"tools":[{"type":"function","function":{"name":"pick","parameters":{"type":"object","properties":{"n":{"enum":[1,2]}},"required":["n"]}}}],"tool_choice":"required","max_tokens":100`
			var got toolAnswer
			if err := json.Unmarshal([]byte(c.post("/v1/chat/completions", say("hello", tools+`,"parallel_tool_calls":false`))), &got); err != nil {
				t.Fatal(err)
			}
			calls := got.Choices[0].Message.ToolCalls
			var arguments struct{ N int }
			if len(calls) != 1 || calls[0].Function.Name != "pick" || json.Unmarshal([]byte(calls[0].Function.Arguments), &arguments) != nil || arguments.N < 1 || arguments.N > 2 {
				t.Errorf("%s: %+v", format, got)
			}
			if *got.Choices[0].FinishReason != "tool_calls" {
				t.Errorf("%s: finish reason %s", format, *got.Choices[0].FinishReason)
			}
		})
	}
}

type vectors struct {
	Object, Model string
	Data          []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
}

func TestEmbeddings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, time.Millisecond)
		ask := func(body string) (vectors, [][]float64) {
			t.Helper()
			var v vectors
			if err := json.Unmarshal([]byte(c.post("/v1/embeddings", body)), &v); err != nil {
				t.Fatal(err)
			}
			var all [][]float64
			for i, d := range v.Data {
				if d.Index != i || d.Object != "embedding" {
					t.Errorf("entry %d: %+v", i, d)
				}
				var list []float64
				if err := json.Unmarshal(d.Embedding, &list); err != nil {
					var text string
					if json.Unmarshal(d.Embedding, &text) != nil {
						t.Fatal(err)
					}
					raw, err := base64.StdEncoding.DecodeString(text)
					if err != nil {
						t.Fatal(err)
					}
					for ; len(raw) > 0; raw = raw[4:] {
						list = append(list, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
					}
				}
				all = append(all, list)
			}
			return v, all
		}
		length := func(v []float64) (sum float64) {
			for _, x := range v {
				sum += x * x
			}
			return math.Sqrt(sum)
		}
		one, a := ask(`{"input":"the river"}`)
		two, b := ask(`{"input":["the river","a boat"],"encoding_format":"base64"}`)
		if one.Object != "list" || one.Model != "parrot" || one.Usage.Prompt < 1 || one.Usage.Prompt != one.Usage.Total || two.Usage.Prompt <= one.Usage.Prompt {
			t.Errorf("usage %+v, %+v", one.Usage, two.Usage)
		}
		if len(a) != 1 || len(b) != 2 || math.Abs(length(a[0])-1) > 1e-6 || cmp.Diff(a[0], b[0], approx) != "" || cmp.Diff(b[0], b[1], approx) == "" {
			t.Errorf("vectors %v, %v", a, b)
		}
		_, cut := ask(`{"input":"the river","dimensions":3}`)
		_, raw := ask(`{"input":"the river","dimensions":3,"normalize":false}`)
		if len(cut[0]) != 3 || math.Abs(length(cut[0])-1) > 1e-6 || math.Abs(cut[0][0]*length(raw[0])-raw[0][0]) > 1e-5 {
			t.Errorf("three dimensions: %v of %v", cut, raw)
		}
		_, mean := ask(`{"input":"the river flows","pooling":"mean"}`)
		_, last := ask(`{"input":"the river flows","pooling":"last"}`)
		if cmp.Diff(mean, last, approx) == "" {
			t.Error("mean and last are the same")
		}
		_, end := ask(`{"input":"the river flows","truncate_prompt_tokens":1}`)
		_, word := ask(`{"input":" flows"}`)
		if len(end[0]) != len(word[0]) {
			t.Errorf("truncated: %v", end)
		}
		_, ids := ask(`{"input":[5,6,7]}`)
		_, lists := ask(`{"input":[[5,6,7],[8]]}`)
		if cmp.Diff(ids[0], lists[0], approx) != "" || len(lists) != 2 {
			t.Errorf("token ids: %v, %v", ids, lists)
		}
	})
}

var approx = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })

func TestPromptLogprobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, 0)
		type scores []map[string]struct {
			Logprob float64
			Rank    *int
			Decoded string `json:"decoded_token"`
		}
		var chat struct {
			Scores scores `json:"prompt_logprobs"`
			Usage  struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(c.post("/v1/chat/completions", say("the river", `,"prompt_logprobs":2,"logprobs":true,"top_logprobs":1`))), &chat); err != nil {
			t.Fatal(err)
		}
		check := func(s scores, prompt int) {
			t.Helper()
			if len(s) != prompt || s[0] != nil {
				t.Fatalf("%d scores for %d tokens, the first %v", len(s), prompt, s[0])
			}
			for i, of := range s[1:] {
				if len(of) < 2 || len(of) > 3 {
					t.Errorf("token %d: %v", i+1, of)
				}
			}
		}
		check(chat.Scores, chat.Usage.Prompt)
		var text struct {
			Choices []struct {
				Scores scores `json:"prompt_logprobs"`
			}
			Usage struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(c.post("/v1/completions", `{"prompt":"the river\n","temperature":0,"prompt_logprobs":2}`)), &text); err != nil {
			t.Fatal(err)
		}
		check(text.Choices[0].Scores, text.Usage.Prompt)
	})
}

func TestCachedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, 0)
		cached := func(more string) int {
			var got struct {
				Usage struct {
					Details struct {
						Cached int `json:"cached_tokens"`
					} `json:"prompt_tokens_details"`
				}
			}
			if err := json.Unmarshal([]byte(c.post("/v1/chat/completions", say(strings.Repeat("the river ", 8), `,"max_tokens":4`+more))), &got); err != nil {
				t.Fatal(err)
			}
			return got.Usage.Details.Cached
		}
		if first, second, salted := cached(""), cached(""), cached(`,"cache_salt":"s"`); first != 0 || second == 0 || salted != 0 {
			t.Errorf("cached tokens: %d, then %d, with a salt %d", first, second, salted)
		}
	})
}

// TestToolOfAFault checks that an unsupported schema of one tool among many is reported with the tool and the place.
func TestToolOfAFault(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	tools := []string{}
	for i := range 20 {
		schema := `{"type":"object","properties":{"a":{"type":"string"}}}`
		if i == 13 {
			schema = `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","contentEncoding":"x","not":{"type":"string"}}}}}`
		}
		tools = append(tools, fmt.Sprintf(`{"type":"function","function":{"name":"f%d","parameters":%s}}`, i, schema))
	}
	resp, data := c.do("POST", "/v1/chat/completions", chatBody("hi", `,"tool_choice":"required","tools":[`+strings.Join(tools, ",")+`]`))
	if resp.StatusCode != 400 || !strings.Contains(data, `the parameters of the tool \"f13\"`) || !strings.Contains(data, "a/items") {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
}
