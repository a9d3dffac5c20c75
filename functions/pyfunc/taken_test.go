package pyfunc_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// TestTakenAsMLflowDoes checks inputs that `mlflow models serve` accepts with mlflow-extensions' model; e2e/real
// compares more of them with the real server.
func TestTakenAsMLflowDoes(t *testing.T) {
	const health = `{"inputs":["HEALTH_CHECK"]}`
	encoded := func(order binary.AppendByteOrder, mark string) string {
		raw := []byte(mark)
		for _, u := range utf16.Encode([]rune(health)) {
			raw = order.AppendUint16(raw, u)
		}
		return string(raw)
	}
	envelope := func(change string) string {
		whole := map[string]any{"method": "POST", "url_path": "/v1/models", "headers": map[string]string{}, "body": "", "body_type": "text", "requires_openai_compat": false}
		if err := json.Unmarshal([]byte(change), &whole); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		all, err := json.Marshal(map[string]any{"inputs": []string{string(text)}})
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	for name, body := range map[string]string{
		"signature_name": `{"inputs":["HEALTH_CHECK"],"signature_name":"x"}`, "params a list": `{"inputs":["HEALTH_CHECK"],"params":[1]}`,
		"UTF-8 with a mark": "\ufeff" + health, "UTF-16": encoded(binary.LittleEndian, ""), "UTF-16 big": encoded(binary.BigEndian, ""),
		"UTF-16 with a mark": encoded(binary.LittleEndian, "\xff\xfe"), "UTF-16 big with a mark": encoded(binary.BigEndian, "\xfe\xff"),
		"headers null": envelope(`{"headers":null}`), "headers a list": envelope(`{"headers":[["x-a","b"]]}`), "no headers in a list": envelope(`{"headers":[]}`),
		"body_type null": envelope(`{"body_type":null}`), "body null": envelope(`{"body":null,"body_type":null}`), "base64 with other characters": envelope(`{"body":"e3!!0=","body_type":"stream"}`),
	} {
		var seen string
		h := newHandler(t, func(w http.ResponseWriter, r *http.Request) { seen = r.Header.Get("X-A"); w.WriteHeader(http.StatusOK) })
		r := httptest.NewRequest(http.MethodPost, "/invocations", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), `{"predictions": ["`) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if want := map[bool]string{true: "b"}[name == "headers a list"]; seen != want {
			t.Errorf("%s: the model saw the header %q, want %q", name, seen, want)
		}
	}
	for name, headers := range map[string]string{"a list of words": `["a"]`, "a word": `"a"`, "one word": `[["a"]]`, "a number": `[["a",1]]`} {
		r := httptest.NewRequest(http.MethodPost, "/invocations", strings.NewReader(envelope(`{"headers":`+headers+`}`)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		newHandler(t, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the model was asked", name) }).ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestColumns checks the answers of `mlflow models serve` 3.17 with mlflow-extensions' model, whose signature is one
// column of strings without a name: the number of predictions, or the code. e2e/real compares with the real server.
func TestColumns(t *testing.T) {
	const noColumn, bad = "INVALID_PARAMETER_VALUE", "BAD_REQUEST"
	for body, want := range map[string]string{
		`{"inputs":"H"}`: "1", `{"inputs":["H","H"]}`: "2", `{"inputs":[["H"],["H"]]}`: "2", `{"inputs":[["H","x"]]}`: "1",
		`{"inputs":[]}`: noColumn, `{"inputs":[[]]}`: noColumn, `{"inputs":[["H"],[]]}`: bad, `{"inputs":[["H","x"],["H"]]}`: bad, `{"inputs":["H",["H"]]}`: bad, `{"inputs":[[5]]}`: bad, `{"inputs":[null]}`: bad,
		`{"inputs":{"a":"H"}}`: bad, `{"inputs":{"a":["H"]}}`: bad, `{"inputs":{}}`: bad, `{"inputs":[{"a":"H"}]}`: bad,

		`{"instances":"H"}`: "1", `{"instances":[["H"]]}`: "1", `{"instances":[{"a":"H"},{"a":"H"}]}`: "2", `{"instances":[{"a":"H"},{"b":"H"}]}`: "1", `{"instances":[{"a":"H","b":5}]}`: "1",
		`{"instances":[]}`: noColumn, `{"instances":[{}]}`: noColumn, `{"instances":[{"a":"H"},5]}`: bad, `{"instances":[{"a":"H","b":5},{"a":"H"}]}`: bad, `{"instances":{"a":["H"]}}`: bad,

		`{"dataframe_records":[{"a":"H"},{"a":"H"}]}`: "2", `{"dataframe_records":[{"a":"H","b":5}]}`: "1", `{"dataframe_records":[{"a":"x","a":"H"}]}`: "1", `{"dataframe_records":["H"]}`: "1", `{"dataframe_records":[["H"]]}`: "1",
		`{"dataframe_records":[]}`: noColumn, `{"dataframe_records":[{}]}`: noColumn, `{"dataframe_records":[{},{"a":"H"}]}`: bad, `{"dataframe_records":[{"a":"H"},{}]}`: bad,
		`{"dataframe_records":[{"a":"H"},"H"]}`: bad, `{"dataframe_records":["H",{"a":"H"}]}`: bad, `{"dataframe_records":[{"a":null}]}`: bad, `{"dataframe_records":[{"a":["H"]}]}`: bad,

		`{"dataframe_split":{"columns":["a","b"],"data":[["H",5]]}}`: "1", `{"dataframe_split":{"data":[["H"],["H","x"]]}}`: "2", `{"dataframe_split":{"columns":["a"],"data":["H","H"]}}`: "2",
		`{"dataframe_split":{"index":[7,8],"data":[["H"]]}}`: "2", `{"dataframe_split":{"index":[],"data":[["H"]]}}`: "0", `{"dataframe_split":{"columns":["a","b"],"data":[]}}`: "0", `{"dataframe_split":{"columns":["a"],"data":null}}`: "0",
		`{"dataframe_split":{"data":[]}}`: noColumn, `{"dataframe_split":{"data":null}}`: noColumn, `{"dataframe_split":{"data":[[]]}}`: noColumn,
		`{"dataframe_split":{"index":[7,8],"data":["H"]}}`: bad, `{"dataframe_split":{"index":[7,8,9],"data":[["H"],["H"]]}}`: bad, `{"dataframe_split":{"columns":["a"],"index":[7],"data":[]}}`: bad,
		`{"dataframe_split":{"data":[["H"],[]]}}`: bad, `{"dataframe_split":{"data":[["H"],"H"]}}`: bad, `{"dataframe_split":{"columns":["a"],"data":[["H","x"]]}}`: bad, `{"dataframe_split":{"data":"H"}}`: bad,

		"a,b\nH,5\n": "1", "a\n0,H\n1,H\n": "2", "a\rH\r": "1", "a,b\nH\n": "1", "a\n": "0", " \n": bad, "a\n5\n": bad, "a\nH\n0,H\n": bad, "a\n0,H\n1\n": bad,
	} {
		contentType := "text/csv"
		if body[0] == '{' {
			contentType = "application/json"
		}
		r := httptest.NewRequest(http.MethodPost, "/invocations", strings.NewReader(strings.NewReplacer(`"H"`, `"HEALTH_CHECK"`, "H,", "HEALTH_CHECK,", "H\n", "HEALTH_CHECK\n", "H\r", "HEALTH_CHECK\r").Replace(body)))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		newHandler(t, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the model was asked", body) }).ServeHTTP(w, r)
		var answer struct {
			Predictions []string
			Code        string `json:"error_code"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%s: %v: %s", body, err, w.Body)
		}
		got := answer.Code
		if w.Code == http.StatusOK {
			got = strconv.Itoa(len(answer.Predictions))
		}
		if got != want {
			t.Errorf("%s: got %s, want %s: %s", body, got, want, w.Body)
		}
	}
}

// TestPrompts checks that a text that is not a request is a prompt, from the column "prompt" or the first one. Its
// prediction is the completion. If one fails, the call fails.
func TestPrompts(t *testing.T) {
	var asked []string
	h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.Path+" "+string(body))
		var q struct{ Prompt string }
		_ = json.Unmarshal(body, &q)
		if q.Prompt == "too long" {
			api.WriteError(w, api.BadRequest("prompt", "it is too long"))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]string{"text": "re: " + q.Prompt}}})
	}, func(c *pyfunc.Config) { c.Parallel = 1 })
	one := `/v1/completions {"prompt":"What is MLflow?","stream":false,"model":"tiny"}`
	for body, want := range map[string]string{
		`{"inputs":["What is MLflow?"]}`: one, `{"inputs":"What is MLflow?"}`: one,
		`{"dataframe_split":{"columns":["id","prompt"],"data":[[7,"What is MLflow?"]]}}`: one,
		`{"dataframe_records":[{"id":7,"prompt":"What is MLflow?"}]}`:                    one,
		"id,prompt\n7,What is MLflow?\n":                                                 one,
		",id,prompt\n0,7,What is MLflow?\n":                                              one,
		`{"inputs":["What is MLflow?"],"params":{"max_tokens":3,"stream":true}}`:         `/v1/completions {"max_tokens":3,"stream":false,"prompt":"What is MLflow?","model":"tiny"}`,
		`{"inputs":["What is MLflow?"],"model":"lora"}`:                                  `/v1/completions {"prompt":"What is MLflow?","stream":false,"model":"lora"}`,
	} {
		asked = nil
		r := httptest.NewRequest(http.MethodPost, "/invocations", strings.NewReader(body))
		r.Header.Set("Content-Type", map[bool]string{true: "application/json", false: "text/csv"}[body[0] == '{'])
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if len(asked) != 1 || !sameJSON(asked[0], want) || w.Code != http.StatusOK || w.Body.String() != `{"predictions": ["re: What is MLflow?"]}` {
			t.Errorf("%s: %d %s, asked %q, want %q", body, w.Code, w.Body, asked, want)
		}
	}
	if w := post(t.Context(), h, `{"inputs":["HEALTH_CHECK","too long","x"]}`); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"message":"it is too long"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := post(t.Context(), h, `{"dataframe_split":{"columns":["id","prompt"],"data":[[7]]}}`); w.Code != http.StatusBadRequest {
		t.Errorf("a row without a prompt: %d %s", w.Code, w.Body)
	}
}

// sameJSON reports whether two requests have the same path, and bodies with the same members.
func sameJSON(a, b string) bool {
	aPath, a, _ := strings.Cut(a, " ")
	bPath, b, _ := strings.Cut(b, " ")
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && aPath == bPath && cmp.Equal(x, y)
}

// TestModelsOfAKey checks that a request inside of a call can name only models that the front door has allowed.
func TestModelsOfAKey(t *testing.T) {
	served := 0
	h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		served++
		_, _ = io.WriteString(w, `{"choices":[{"text":"x"}]}`)
	})
	chat := func(body string) string {
		return call(pyfunc.Request{Method: "POST", Path: "/v1/chat/completions", Header: []pyfunc.Field{{Name: "X-Rouse-Models", Value: "lora-2"}}, Body: []byte(body)})
	}
	for _, test := range []struct {
		body    string
		allowed []string
		want    bool
	}{
		{chat(`{"model":"lora-2"}`), nil, true}, // the key may use all
		{chat(`{"model":"lora-1"}`), []string{"tiny", "lora-1"}, true},
		{chat(`{"model":"lora-2"}`), []string{"tiny", "lora-1"}, false},
		{chat(`{"Model":"lora-2"}`), []string{"tiny"}, false},
		{chat(`{"model":"tiny","model":"lora-2"}`), []string{"tiny"}, false},
		{chat(`{"messages":[]}`), []string{"tiny"}, true},
		{chat(`{"messages":[]}`), []string{"lora-1"}, false}, // the request is for the function's own model
		{chat(`--form`), []string{"tiny"}, false},
		{call(get("/models")), []string{"tiny"}, true},
		{`{"inputs":["hi"]}`, []string{"tiny"}, true},
		{`{"inputs":["hi"],"params":{"model":"lora-2"}}`, []string{"tiny"}, false},
		{`{"messages":[],"model":"tiny","model":"lora-2"}`, []string{"tiny"}, false},
	} {
		served = 0
		r := httptest.NewRequest(http.MethodPost, "/invocations", strings.NewReader(test.body))
		r.Header.Set("Content-Type", "application/json")
		if test.allowed != nil {
			r.Header[control.HeaderModels] = test.allowed
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if served == 1 != test.want || !test.want && !strings.Contains(w.Body.String(), "the key may") {
			t.Errorf("%s with %q: asked the runtime %d times: %d %s", test.body, test.allowed, served, w.Code, w.Body)
		}
	}
}
