package pyfunc_test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf16"
)

// What `mlflow models serve` takes with mlflow-extensions' model is taken; e2e/real compares more of it with the real one.
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
