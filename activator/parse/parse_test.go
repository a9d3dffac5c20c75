package parse

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

func TestJSON(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1)
	for _, tc := range []struct {
		name, body string
		want       Request
	}{
		{"plain", `{"model":"m","stream":true}`, Request{Model: "m", Stream: true}},
		{"spaces", " \r\n\t{ \"model\" : \"m\" , \"stream\" : false } \n", Request{Model: "m"}},
		{"empty object", `{}`, Request{}},
		{"nulls", `{"model":null,"stream":null}`, Request{}},
		{"escaped key and value", `{"mod\u0065l":"a\/b\u00e9"}`, Request{Model: "a/bé"}},
		{"a repeated field that says nothing here", `{"logprobs":1,"logprobs":2}`, Request{}},
		{"a prompt", `{"tools":[1], "messages": [{"role":"x"}] ,"system":"s","cache_salt":"c","user":"u"}`,
			Request{Prompt: Prompt{System: []byte(`"s"`), Tools: []byte(`[1]`), Messages: []byte(`[{"role":"x"}]`), Salt: []byte(`"c"`), Session: []byte(`"u"`)}}},
		{"a prompt of responses", `{"user":"u","conversation":{"id":"c"},"instructions":"s","input":"i"}`,
			Request{Prompt: Prompt{System: []byte(`"s"`), Messages: []byte(`"i"`), Session: []byte(`{"id":"c"}`)}, Stored: "conversation"}},
		{"a key of a prompt", `{"user":"u","prompt_cache_key":"k","conversation":"c","\u0070rompt":"p","tools":null}`,
			Request{Prompt: Prompt{Messages: []byte(`"p"`), Session: []byte(`"k"`)}, Stored: "conversation"}},
		{"only at the top", `{"x":{"model":"no","stream":true},"y":[{"model":"no"}],"model":"m"}`, Request{Model: "m"}},
		{"a name within another", `{"models":"x","model":"m","mode":"y"}`, Request{Model: "m"}},
		{"quotes in strings", `{"a":"\"model\":\"x\"","model":"m"}`, Request{Model: "m"}},
		{"max_tokens", `{"max_tokens":100}`, Request{Tokens: 100}},
		{"max_completion_tokens wins", `{"max_tokens":100,"max_completion_tokens":7}`, Request{Tokens: 7}},
		{"absurd max_tokens", `{"max_tokens":9223372036854775807}`, Request{Tokens: 1 << 30}},
		{"negative max_tokens", `{"max_tokens":-5}`, Request{}},
		{"max_tokens of another type is the runtime's to refuse", `{"max_tokens":"many"}`, Request{}},
		{"priority, lower is earlier", `{"priority":-3}`, Request{Priority: 3}},
		{"absurd priority", `{"priority":9223372036854775807}`, Request{Priority: -1 << 20}},
		{"service tiers", `{"service_tier":"flex"}`, Request{Priority: -1, Tier: "flex"}},
		{"priority tier", `{"service_tier":"priority"}`, Request{Priority: 1, Tier: "priority"}},
		{"n, logprobs, stop as string", `{"n":3,"logprobs":true,"stop":"x"}`, Request{Sequences: 3}},
		{"inputs", `{"input": [ "a","b,c", [1,2]]}`, Request{Sequences: 3, Prompt: Prompt{Messages: []byte(`[ "a","b,c", [1,2]]`)}}},
		{"one list of tokens", `{"prompt":[1,2,3],"n":null}`, Request{Prompt: Prompt{Messages: []byte(`[1,2,3]`)}}},
		{"no inputs", `{"input":[ ],"n":0}`, Request{Prompt: Prompt{Messages: []byte(`[ ]`)}}},
		{"prompts, each several times", `{"prompt":["a","b"],"n":2,"best_of":5}`, Request{Sequences: 10, Prompt: Prompt{Messages: []byte(`["a","b"]`)}}},
		{"absurd n", `{"n":9223372036854775807}`, Request{Sequences: mostSequences}},
		{"stop as list", `{"stop":["x","y"],"logprobs":5}`, Request{}},
		{"numbers", `{"a":[0,-0,1.5,1e9,-1.25E-3,1e999]}`, Request{}},
		{"deepest", `{"a":` + deep + `}`, Request{}},
		{"lone surrogate", `{"a":"\ud800"}`, Request{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := JSON(jsonfield.Open([]byte(tc.body)))
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Input = api.Tokens(len(tc.body) / bytesPerToken)
			tc.want.Tokens += tc.want.Input
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJSONRefuses(t *testing.T) {
	for _, tc := range []struct{ name, body, param, want string }{
		{"empty", "", "", "the body is empty"},
		{"spaces only", " \n", "", "the body is empty"},
		{"not JSON", "hello", "", `want a JSON object, beginning with { at byte 0, got "hello"`},
		{"an array", `[1]`, "", "want a JSON object"},
		{"a form", "model=m&stream=true", "", "want a JSON object"},
		{"truncated", `{"model":"m","messages":[{"role":"us`, "", "the body ends too early, after 36 bytes"},
		{"truncated after a key", `{"model"`, "", "ends too early, after 8 bytes"},
		{"truncated after a comma", `{"model":"m",`, "", "ends too early, after 13 bytes"},
		{"two objects", `{}{}`, "", "want nothing after the object at byte 2"},
		{"trailing comma", `{"a":1,}`, "", "invalid character ',' at start of value at byte 6"},
		{"single quotes", `{'model':'m'}`, "", `invalid character '\'' at start of value at byte 1`},
		{"NaN", `{"temperature":NaN}`, "", "invalid character 'N' at start of value at byte 15"},
		{"leading zero", `{"a":01}`, "", "(expecting ',' or '}') at byte 6"},
		{"bare minus", `{"a":-}`, "", "in number (expecting digit) at byte 6"},
		{"no digits after a point", `{"a":1.}`, "", "in number (expecting digit)"},
		{"control character", "{\"a\":\"x\ny\"}", "", "in string (expecting non-control character)"},
		{"bad escape", `{"a":"\x"}`, "", "invalid escape sequence"},
		{"bad unicode escape", `{"a":"\u12g4"}`, "", "invalid escape sequence"},
		{"mismatched brackets", `{"a":[1}`, "", "(expecting ',' or ']')"},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", "", "not valid UTF-8 at byte 6"},
		{"UTF-16", "\xff\xfe{\x00", "", "not valid UTF-8 at byte 0"},
		{"too deep", `{"a":` + strings.Repeat("[", 100000), "", "more than 512 deep"},
		{"zero byte", "{\"a\":1}\x00", "", "want nothing after the object"},
		{"model twice", `{"model":"a","model":"b"}`, "", "the field model occurs twice"},
		{"model twice, once escaped", `{"mod\u0065l":"a","model":"b"}`, "", "the field model occurs twice"},
		{"model in another case", `{"Model":"x","model":"m"}`, "", `the field "Model" is not model`},
		{"stream with a long s", `{"ſtream":true}`, "", `is not stream`},
		{"an escaped capital", `{"\u004dODEL":"x"}`, "", `the field "MODEL" is not model`},
		{"model is a number", `{"model":5}`, "model", "the field model is a number: want a string"},
		{"model is an object", `{"model":{"id":"m"}}`, "model", "the field model is an object"},
		{"model is a list", `{"model":["m"]}`, "model", "the field model is an array"},
		{"model is a boolean", `{"model":true}`, "model", "the field model is a boolean"},
		{"stream is a string", `{"model":"m","stream":"true"}`, "stream", "the field stream is a string: want true or false"},
		{"service_tier is a number", `{"model":"m","service_tier":5}`, "service_tier", "the field service_tier is a number: want a string"},
		{"stream is a number", `{"model":"m","stream":1}`, "stream", "the field stream is a number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := JSON(jsonfield.Open([]byte(tc.body)))
			if err == nil || err.Status != http.StatusBadRequest || err.Param != tc.param || !strings.Contains(err.Message, tc.want) {
				t.Errorf("got %+v, want a 400 for %q with %q", err, tc.param, tc.want)
			}
		})
	}
}

// FuzzJSON compares with encoding/json which bodies are accepted, and the values of the fields.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"model":"m","stream":true,"messages":[{"role":"user","content":"x\u00e9\"\\"}]}`,
		`{"model":null,"a":[1,-2.5e+3,{"b":[]},[],{}],"stream":false}`, `{"model":"a","mod\u0065l":"b"}`,
		`{"a":tru}`, `[`, "{\"a\":\"\x01\"}", "{\"\xff\":1}", `{"a":1}x`, `{"priority":-1,"max_tokens":3}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		got, bad := JSON(jsonfield.Open(body))
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		if bad != nil && (bad.Status != http.StatusBadRequest || bad.Message == "" || !utf8.ValidString(bad.Message)) {
			t.Fatalf("refusal %+v: want a 400 with a message in UTF-8", bad)
		}
		want, ok := slow(body)
		if depth(body) > MaxDepth {
			return // encoding/json allows more
		}
		if ok != (bad == nil) {
			t.Fatalf("body %q: got refusal %v, want accepted: %t", body, bad, ok)
		}
		if ok && (got.Model != want.Model || got.Stream != want.Stream) {
			t.Fatalf("body %q: got %+v, want %+v", body, got, want)
		}
	})
}

// slow is JSON implemented with encoding/json.
func slow(body []byte) (r Request, ok bool) {
	var fields map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &fields) != nil || fields == nil {
		return r, false
	}
	read := func(key string, into any) bool {
		raw, found := fields[key]
		return !found || json.Unmarshal(raw, into) == nil
	}
	ok = read("model", &r.Model) && read("stream", &r.Stream)
	return r, ok && unambiguous(body)
}

// unambiguous reports whether every server reads the same fields of an object.
func unambiguous(body []byte) bool {
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(body))
	for _, _ = dec.Token(); dec.More(); { // the first is the opening brace
		name, _ := dec.Token()
		var value json.RawMessage
		_ = dec.Decode(&value)
		for _, n := range jsonfield.Read {
			key := name.(string)
			if strings.EqualFold(key, n) && (key != n || seen[n]) {
				return false
			}
			seen[n] = seen[n] || key == n
		}
	}
	return true
}

// depth returns an upper bound of the nesting of brackets.
func depth(body []byte) int { return bytes.Count(body, []byte("[")) + bytes.Count(body, []byte("{")) }

func TestForm(t *testing.T) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	file, _ := w.CreateFormFile("file", "speech.wav")
	_, _ = file.Write(bytes.Repeat([]byte{0xff}, 10000))
	_ = w.WriteField("model", "whisper")
	_ = w.WriteField("stream", "true")
	_ = w.Close()
	got, err := Form(w.FormDataContentType(), b.Bytes())
	if err != nil || got.Model != "whisper" || !got.Stream {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := Form("multipart/form-data", b.Bytes()); err == nil || err.Status != http.StatusBadRequest {
		t.Errorf("no boundary: got %v, want a 400", err)
	}
	if got, err := Form(w.FormDataContentType(), b.Bytes()[:500]); err != nil || got.Model != "" {
		t.Errorf("cut off: got %+v, %v, want no model", got, err)
	}
}

// TestFormBounds checks that a form's parts and their headers are bounded.
func TestFormBounds(t *testing.T) {
	const model = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n"
	part := func(more string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n" + more + "\r\nx\r\n"
	}
	for name, tt := range map[string]struct{ parts, refused string }{
		"as many as may be":  {strings.Repeat(part(""), maxParts-1) + model, ""},
		"too many":           {strings.Repeat(part(""), maxParts) + model, "more than 256 parts"},
		"a long header":      {part("X: "+strings.Repeat("x", maxPartHeader)+"\r\n") + model, "more than 8192 bytes"},
		"a very long header": {part("X: "+strings.Repeat("x", 11<<20)+"\r\n") + model, "more than 8192 bytes"},
		"many fields in one": {part(strings.Repeat("X: xxxxxxxx\r\n", maxPartHeader/8)) + model, "more than 8192 bytes"},
	} {
		got, err := Form("multipart/form-data; boundary=b", []byte(tt.parts+"--b--\r\n"))
		switch {
		case tt.refused == "" && (err != nil || got.Model != "m"):
			t.Errorf("%s: got %+v, %v", name, got, err)
		case tt.refused != "" && (err == nil || err.Status != http.StatusBadRequest || !strings.Contains(err.Message, tt.refused)):
			t.Errorf("%s: got %+v, %v, want a 400 with %q", name, got, err, tt.refused)
		}
	}
}

// TestFormsOfTwoMeanings: a form that servers may read differently is refused, or read as they do.
func TestFormsOfTwoMeanings(t *testing.T) {
	const model = "Content-Disposition: form-data; name=\"model\""
	for name, tt := range map[string]struct{ parts, model, refused string }{
		"a file":            {"--b\r\n" + model + "; filename=\"x\"\r\n\r\nm\r\n--b--\r\n", "", "a file"},
		"without a name":    {"--b\r\n" + model + "; filename=\"\"\r\n\r\nm\r\n--b--\r\n", "", "a file"},
		"twice":             {"--b\r\n" + model + "\r\n\r\nm\r\n--b\r\n" + model + "\r\n\r\nn\r\n--b--\r\n", "", "two fields"},
		"with an encoding":  {"--b\r\n" + model + "\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=6d\r\n--b--\r\n", "=6d", ""},
		"an attachment":     {"--b\r\n" + model + "\r\n\r\nm\r\n--b\r\nContent-Disposition: attachment; name=\"model\"\r\n\r\nn\r\n--b--\r\n", "", "form-data"},
		"with a bad word":   {"--b\r\n" + model + "; =x\r\n\r\nm\r\n--b--\r\n", "", "form-data"},
		"named twice":       {"--b\r\nContent-Disposition: form-data; name=\"x\"\r\n" + model + "\r\n\r\nm\r\n--b--\r\n", "", "form-data"},
		"by another's name": {"--b\r\nContent-Disposition: form-data; name=\"Model\"\r\n\r\nm\r\n--b--\r\n", "", ""},
	} {
		got, err := Form("multipart/form-data; boundary=b", []byte(tt.parts))
		if got.Model != tt.model || (err != nil) != (tt.refused != "") || err != nil && !strings.Contains(err.Message, tt.refused) {
			t.Errorf("%s: model %q, %v; want %q, %s", name, got.Model, err, tt.model, tt.refused)
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		body := fmt.Appendf(nil, `{"model":"m","stream":true,"messages":[{"role":"user","content":"%s"}]}`, strings.Repeat("word and ", size/9))
		b.Run(fmt.Sprint(len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := JSON(jsonfield.Open(body)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
