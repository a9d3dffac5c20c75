package real

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"
)

// scored is a request of a scoring server, and how its two answers may differ.
type scored struct {
	name, contentType, body string
	differs                 string // why the status differs; empty: it must not
}

// envelope is a request in mlflow-extensions' own form, as a JSON string, with some of its keys replaced.
func envelope(keys map[string]any) string {
	whole := map[string]any{"method": "GET", "url_path": "/v1/models", "headers": map[string]string{}, "body": nil, "body_type": "none", "requires_openai_compat": false}
	for name, value := range keys {
		whole[name] = value
	}
	text, _ := json.Marshal(whole)          // plain values
	quoted, _ := json.Marshal(string(text)) // a string
	return string(quoted)
}

// utf16LE encodes a text without its mark.
func utf16LE(text string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(text)) {
		b.WriteByte(byte(u))
		b.WriteByte(byte(u >> 8))
	}
	return b.String()
}

// scorings are what both scoring servers are asked.
func scorings() []scored {
	const health = `"HEALTH_CHECK"`
	j := func(name, body string) scored { return scored{name, "application/json", body, ""} }
	of := func(contentType, body string) scored { return scored{contentType, contentType, body, ""} }
	frame := func(name, split string) scored { return j("split: "+name, `{"dataframe_split":`+split+`}`) }
	inner := func(name string, keys map[string]any) scored {
		return j("envelope: "+name, `{"inputs":[`+envelope(keys)+`]}`)
	}
	differs := func(why string, q scored) scored { q.differs = why; return q }
	const arrays = "MLflow makes arrays of an object's values, which its clients' own model does not take; here they are taken"
	return []scored{
		j("inputs", `{"inputs":[`+health+`]}`), j("two inputs", `{"inputs":[`+health+`,`+health+`]}`), j("no inputs", `{"inputs":[]}`),
		differs(arrays, j("an object of inputs", `{"inputs":{"a":`+health+`}}`)), differs(arrays, j("an object of lists", `{"inputs":{"a":[`+health+`]}}`)), j("inputs null", `{"inputs":null}`),
		j("inputs a string", `{"inputs":`+health+`}`), j("inputs a number", `{"inputs":5}`), j("numbers in inputs", `{"inputs":[5]}`),
		j("instances", `{"instances":[`+health+`]}`), differs(arrays, j("instances of objects", `{"instances":[{"a":`+health+`}]}`)), j("instances of unlike objects", `{"instances":[{"a":`+health+`},{"b":`+health+`}]}`),
		j("records", `{"dataframe_records":[{"a":`+health+`}]}`), j("records of two columns", `{"dataframe_records":[{"a":`+health+`,"b":`+health+`}]}`),
		j("records an object", `{"dataframe_records":{"a":`+health+`}}`), j("records a number", `{"dataframe_records":5}`), differs("a frame without columns; here there is nothing to do", j("no records", `{"dataframe_records":[]}`)),
		frame("one column", `{"columns":["a"],"data":[[`+health+`]]}`), frame("an index", `{"columns":["a"],"index":[7],"data":[[`+health+`]]}`),
		differs("pandas repeats a single row for each label", frame("an index too long", `{"columns":["a"],"index":[7,8],"data":[[`+health+`]]}`)), frame("an index too short", `{"columns":["a"],"index":[7],"data":[[`+health+`],[`+health+`]]}`),
		frame("two names", `{"columns":["a","b"],"data":[[`+health+`]]}`), frame("no data", `{"columns":["a"]}`), frame("another key", `{"data":[[`+health+`]],"x":1}`),
		frame("a list", `[]`), frame("a number", `5`), frame("data only", `{"data":[[`+health+`]]}`), frame("no rows", `{"columns":["a"],"data":[]}`), frame("columns null", `{"columns":null,"data":[`+health+`]}`),
		j("two forms", `{"inputs":[],"instances":[]}`), j("no form", `{"x":1}`), j("empty object", `{}`), j("a list", `[1]`), j("a string", `"x"`), j("null", `null`), j("no JSON", `{"inputs":`), j("empty", ``),
		j("params", `{"inputs":[`+health+`],"params":{"a":1}}`), j("params a list", `{"inputs":[`+health+`],"params":[1]}`), j("params a string", `{"inputs":[`+health+`],"params":"x"}`), j("params null", `{"inputs":[`+health+`],"params":null}`),
		j("signature_name", `{"inputs":[`+health+`],"signature_name":"serving_default"}`), differs(arrays, j("signature_name in inputs", `{"inputs":{"signature_name":`+health+`}}`)),
		j("a mark", "\ufeff"+`{"inputs":[`+health+`]}`), j("UTF-16", utf16LE(`{"inputs":[`+health+`]}`)), j("UTF-16 with a mark", "\xff\xfe"+utf16LE(`{"inputs":[`+health+`]}`)), j("no UTF-8", "{\"inputs\":[\"\xff\"]}"),
		of("text/csv", "a\nHEALTH_CHECK\n"), of("text/csv; charset=utf-8", "a\nHEALTH_CHECK\n"), of("application/json; charset=latin-1", "{}"), of("application/json; x=1", "{}"), of("text/plain", "x"), differs("MLflow fails with 500", of("", "x")), differs("no Parquet is read here: 415", of("application/vnd.apache.parquet", "x")),
		{"csv: two columns", "text/csv", "a,b\nHEALTH_CHECK,x\n", ""}, {"csv: empty", "text/csv", "", ""}, {"csv: a name only", "text/csv", "a\n", ""},
		inner("plain", nil), inner("headers null", map[string]any{"headers": nil}), inner("headers a list", map[string]any{"headers": [][]string{{"a", "b"}}}), inner("body_type null", map[string]any{"body_type": nil}),
		inner("base64", map[string]any{"method": "POST", "body_type": "stream", "body": "e30="}), inner("broken base64", map[string]any{"method": "POST", "body_type": "stream", "body": "e30"}),
		inner("method null", map[string]any{"method": nil}), inner("an unknown path", map[string]any{"url_path": "/nowhere"}), j("envelope: none", `{"inputs":["x"]}`), j("envelope: keys missing", `{"inputs":["{}"]}`),
	}
}

// scoring is a running `mlflow models serve`.
func scoring(t *testing.T, dir, model, server string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(filepath.Join(dir, "venv/bin/mlflow"), "models", "serve", "-m", filepath.Join(dir, model), "--env-manager", "local", "-h", "127.0.0.1", "-p", port)
	cmd.Env = append(os.Environ(), "SERVER="+server, "PATH="+filepath.Join(dir, "venv/bin")+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
	cmd.Dir = t.TempDir() // uvicorn looks for modules where it is, and here is an mlflow.py
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("mlflow printed:\n%s", out.String())
		}
	})
	for {
		if resp, err := http.Get("http://" + address + "/ping"); err == nil {
			_ = resp.Body.Close()
			return "http://" + address
		}
		select {
		case <-ended:
			t.Fatal("mlflow has ended")
		case <-time.After(100 * time.Millisecond): // another process has its own clock
		}
	}
}

// asked is one answer of a scoring server.
type asked struct {
	status int
	body   string
}

func score(t *testing.T, url string, q scored) asked {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.contentType != "" {
		req.Header.Set("Content-Type", q.contentType)
	}
	req.Close = true // MLflow closes a connection after a failure without a word
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", q.name, err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return asked{resp.StatusCode, body.String()}
}

// said reduces an answer to what both scoring servers must agree on: the number of predictions, or the error code.
func (a asked) said() string {
	var v struct {
		Predictions []any
		Code        string `json:"error_code"`
	}
	_ = json.Unmarshal([]byte(a.body), &v) // an answer in words says nothing alike
	if a.status == http.StatusOK {
		return fmt.Sprint(len(v.Predictions), " predictions")
	}
	return v.Code
}

// TestMLflow asks /invocations of a function what `mlflow models serve` is asked with mlflow-extensions' model.
func TestMLflow(t *testing.T) {
	dir := installed(t, "mlflow")
	u := start(t, dir, `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: pico}
spec:
  template:
    metadata: {annotations: {rouse.dev/model: pico, rouse.dev/sleep-after: 2h}}
    spec: {containers: [{image: example.com/any}]}
`)
	oracle := scoring(t, dir, "model", u.url)
	for _, q := range scorings() {
		theirs, ours := score(t, oracle+"/invocations", q), score(t, u.url+"/serving-endpoints/pico/invocations", q)
		alike := theirs.status == ours.status && theirs.said() == ours.said()
		switch {
		case alike && q.differs != "":
			t.Errorf("%s: alike, though it is said to differ: %s", q.name, q.differs)
		case !alike && q.differs == "":
			t.Errorf("%s: %d %.300s\nMLflow: %d %.300s", q.name, ours.status, ours.body, theirs.status, theirs.body)
		}
	}
}
