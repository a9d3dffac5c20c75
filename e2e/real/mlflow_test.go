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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"
)

// scored is a request of a scoring server, and how its two answers may differ.
type scored struct {
	name, contentType, body string
	differs                 string // why the answers differ; empty: they must not
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

// scorings returns the requests to both scoring servers. The other server's model is signed as mlflow-extensions signs
// its models: one column of strings without a name. parquet is a table of one column.
func scorings(parquet string) []scored {
	const health, js = `"HEALTH_CHECK"`, "application/json"
	j := func(name, body string) scored {
		return scored{name, js, strings.ReplaceAll(body, "H", health), ""}
	}
	of := func(contentType, body string) scored { return scored{contentType, contentType, body, ""} }
	csv := func(body string) scored {
		return scored{"csv " + strconv.Quote(body), "text/csv", strings.ReplaceAll(body, "H", "HEALTH_CHECK"), ""}
	}
	inner := func(name string, keys map[string]any) scored {
		return scored{"envelope: " + name, js, `{"inputs":[` + envelope(keys) + `]}`, ""}
	}
	differs := func(why string, all ...scored) []scored {
		for k := range all {
			all[k].differs = why
		}
		return all
	}
	all := []scored{
		j("two forms", `{"inputs":[],"instances":[]}`), j("no form", `{"x":1}`), j("empty object", `{}`), j("a list", `[1]`), j("a string", `"x"`), j("null", `null`), j("no JSON", `{"inputs":`), j("empty", ``),
		j("params", `{"inputs":[H],"params":{"temperature":0.1}}`), j("params of another type", `{"inputs":[H],"params":{"temperature":"x"}}`), j("params a list", `{"inputs":[H],"params":[1]}`), j("params a string", `{"inputs":[H],"params":"x"}`), j("params null", `{"inputs":[H],"params":null}`),
		j("signature_name", `{"inputs":[H],"signature_name":"serving_default"}`), j("signature_name in inputs", `{"inputs":{"signature_name":H}}`), j("model", `{"inputs":[H],"model":"default"}`),
		j("a mark", "\ufeff"+`{"inputs":[H]}`), {"UTF-16", js, utf16LE(`{"inputs":[` + health + `]}`), ""}, {"UTF-16 with a mark", js, "\xff\xfe" + utf16LE(`{"inputs":[`+health+`]}`), ""}, j("no UTF-8", "{\"inputs\":[\"\xff\"]}"),
		of("text/csv; charset=utf-8", "a\nHEALTH_CHECK\n"), of("application/json; charset=UTF-8", `{"inputs":[`+health+`]}`), of("application/json; charset=latin-1", "{}"), of("application/json; x=1", "{}"), of("application/json;", "{}"),
		of("application/jsonlines", "{}"), of("text/plain", "x"), of("multipart/form-data; boundary=x", "x"), of("application/x-npy", "x"),
		csv("a\nH\n"), csv("a,b\nH,x\n"), csv("a\r\nH\r\n"), csv("a\rH\r"), csv("\ufeffa\nH\n"), csv("a\n\nH\n"), csv("a\n\"H\"\n"), csv(""), csv(" \n"), csv("a\n"), csv("a\n5\n"), csv("a\nNA\n"), csv("a\n\"H\n"),
		csv("a\n0,H\n1,H\n"), csv(",a\n0,H\n"), csv("a,b\nH\n"), csv("a\nH\n0,H\n"), csv("a\n0,H\n1\n"),
		inner("plain", nil), inner("headers null", map[string]any{"headers": nil}), inner("headers a list", map[string]any{"headers": [][]string{{"a", "b"}}}), inner("body_type null", map[string]any{"body_type": nil}),
		inner("base64", map[string]any{"method": "POST", "body_type": "stream", "body": "e30="}), inner("broken base64", map[string]any{"method": "POST", "body_type": "stream", "body": "e30"}),
		inner("method null", map[string]any{"method": nil}), inner("an unknown path", map[string]any{"url_path": "/nowhere"}), j("envelope: none", `{"inputs":["x"]}`), j("envelope: keys missing", `{"inputs":["{}"]}`),
	}
	for form, bodies := range map[string]string{
		"inputs":            `H|[H]|[H,H]|[]|null|5|[5]|[null]|[H,5]|[[H]]|[[H],[H]]|[[H,"x"]]|[[5]]|[[]]|[[H],[]]|[[H,"x"],[H]]|[H,[H]]|{}|{"a":H}|{"b":H}|{"a":[H]}|{"a":[]}|{"a":[[H]]}|{"a":5}|{"a":H,"b":H}|{"a":[H],"b":[5]}|[{"a":H}]`,
		"instances":         `H|[H]|[]|null|[[H]]|[[H],[H,"x"]]|[{"a":H}]|[{"a":H},{"a":H}]|[{"a":H},{"b":H}]|[{"a":H,"b":5}]|[{"a":H,"b":5},{"a":H}]|[{"a":H},5]|[5,{"a":H}]|[{}]|[{},{"a":H}]|{"a":[H]}|{"a":H}|{"a":[H],"b":[]}`,
		"dataframe_records": `[{"a":H}]|[{"b":H}]|[{"a":H,"b":5}]|[{"a":5}]|[{"a":true}]|[{"a":null}]|[{"a":[H]}]|[]|[{}]|[{"a":H},{}]|[{},{"a":H}]|[H]|[[H]]|[[H],[]]|[{"a":H},H]|[H,{"a":H}]|[5]|[null]|[{"a":"x","a":H}]|{"a":H}|5`,
		"dataframe_split": `{"columns":["a"],"data":[[H]]}|{"data":[[H]]}|{"columns":["a","b"],"data":[[H,5]]}|{"columns":["a","b"],"data":[[H]]}|{"columns":["a"],"data":[[H,5]]}|{"columns":["a"],"data":[[5]]}|{"columns":["a"],"data":[[null]]}|` +
			`{"columns":["a"],"index":[7],"data":[[H]]}|{"columns":["a"],"index":[7,8],"data":[[H]]}|{"index":[7,8],"data":[[H]]}|{"index":[],"data":[[H]]}|{"index":[7,8],"data":[H]}|{"index":[7],"data":[[H],[H]]}|{"index":[7,8,9],"data":[[H],[H]]}|` +
			`{"columns":["a"],"index":[7,8],"data":[]}|{"columns":["a"],"data":[]}|{"columns":["a","b"],"data":[]}|{"data":[]}|{"columns":["a"],"data":null}|{"data":null}|{"data":[H,H]}|{"columns":["a"],"data":[H]}|{"columns":["a"],"data":H}|{"data":5}|` +
			`{"columns":"a","data":[[H]]}|{"columns":["a"],"index":"x","data":[[H]]}|{"columns":null,"data":[H]}|{"data":[[H],[H,"x"]]}|{"data":[[H],[]]}|{"data":[[]]}|{"data":[[H],H]}|{"data":[H,[H]]}|{"columns":["a"]}|{"data":[[H]],"x":1}|[]|5`,
	} {
		for body := range strings.SplitSeq(bodies, "|") {
			all = append(all, j(form+" "+body, `{"`+form+`":`+body+`}`))
		}
	}
	const frames = "pandas makes a frame of columns, objects or one value; here it has rows, as MLflow's clients write it"
	all = append(all, differs(frames, j("split: objects", `{"dataframe_split":{"data":[{"a":H}]}}`), j("split: columns", `{"dataframe_split":{"data":{"a":[H]}}}`), j("split: one value", `{"dataframe_split":{"columns":["a"],"index":[1],"data":H}}`))...)
	all = append(all, differs("the names of columns are not looked at", j("split: one name twice", `{"dataframe_split":{"columns":["a","a"],"data":[[H,H]]}}`))...)
	all = append(all, differs("a quote within a cell is no CSV (RFC 4180)", csv("a\nH\"x\n"))...)
	all = append(all, differs("the case of a media type and quotes in it do not count (RFC 9110)", of("Application/JSON", `{"inputs":[`+health+`]}`), of(`application/json; charset="utf-8"`, `{"inputs":[`+health+`]}`))...)
	all = append(all, differs("MLflow fails with 500; here it is a 415 that says what to send", of("", "{}"))...)
	all = append(all, differs("no Parquet is read here: 415", of("application/vnd.apache.parquet", parquet), scored{"no Parquet", "application/vnd.apache.parquet", "x", ""})...)
	return all
}

// scoring is a running `mlflow models serve` of a model.
func scoring(t *testing.T, dir, model, server string) string {
	t.Helper()
	return listening(t, dir, server, func(port string) []string {
		return []string{"mlflow", "models", "serve", "-m", model, "--env-manager", "local", "-h", "127.0.0.1", "-p", port}
	})
}

// listening is a program of an installation that listens at a port, with $SERVER in its environment. It returns its URL once it answers at /ping.
func listening(t *testing.T, dir, server string, command func(port string) []string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := python(t, dir, command(port)...)
	cmd.Env = append(cmd.Env, "SERVER="+server)
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
			t.Logf("%s printed:\n%s", cmd, out.String())
		}
	})
	for {
		if resp, err := http.Get("http://" + address + "/ping"); err == nil {
			_ = resp.Body.Close()
			return "http://" + address
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended", cmd)
		case <-time.After(100 * time.Millisecond): // another process has its own clock
		}
	}
}

// python is a command of an installation. Where it runs there is no mlflow.py, which modules would be looked for in.
func python(t *testing.T, dir string, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "venv/bin", argv[0]), argv[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "venv/bin")+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "PYTHONHASHSEED=0") // MLflow prints sets
	cmd.Dir = t.TempDir()
	return cmd
}

// script is the path of a file of this folder.
func script(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
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

// pico is the manifest of a function for all forms of MLflow's requests.
const pico = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: pico}
spec:
  template:
    metadata: {annotations: {rouse.dev/model: pico, rouse.dev/sleep-after: 2h}}
    spec: {containers: [{image: example.com/any}]}
`

// TestMLflow asks /invocations of a function what `mlflow models serve` is asked with mlflow-extensions' model.
func TestMLflow(t *testing.T) {
	dir := installed(t, "mlflow")
	u := start(t, dir, pico)
	signed, model := t.TempDir(), filepath.Join(dir, "model")
	if out, err := python(t, dir, "python", script(t, "mlflow_signatures.py"), model, signed).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	parquet, err := os.ReadFile(filepath.Join(signed, "one.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	all := scorings(string(parquet))
	ours := map[string]asked{}
	t.Run("extensions", func(t *testing.T) {
		oracle := scoring(t, dir, filepath.Join(signed, "extensions"), u.url)
		for _, q := range all {
			theirs, our := score(t, oracle+"/invocations", q), score(t, u.url+"/invocations", q)
			ours[q.name] = our
			alike := theirs.status == our.status && theirs.said() == our.said()
			switch {
			case alike && q.differs != "":
				t.Errorf("%s: alike, though it is said to differ: %s", q.name, q.differs)
			case !alike && q.differs == "":
				t.Errorf("%s: %d %.300s\nMLflow: %d %.300s", q.name, our.status, our.body, theirs.status, theirs.body)
			}
		}
	})
	// What a model with another signature answers is answered alike. What it refuses may be taken: here are no names, no types of other columns and
	// no schema of parameters.
	oracle := listening(t, dir, u.url, func(port string) []string {
		return []string{"python", script(t, "mlflow_signatures.py"), model, signed, port}
	})
	const named = "the column is found by its name, and here it is the first and has none"
	const empty = "no rows are a column of none, and here no column"
	differs := map[string]map[string]string{
		"params": {}, "tensor": {`dataframe_records [{"a":[H]}]`: "a cell may be a tensor"},
		"column": {"inputs []": empty, "instances []": empty, `inputs {"a":[H],"b":[5]}`: named}, "optional": {},
		"long": {"inputs []": empty, "instances []": empty, `inputs {"a":[]}`: named},
	}
	for _, signature := range []string{"column", "optional"} {
		for _, q := range []string{`inputs {"a":H}`, `inputs {"a":[H]}`, `inputs {"a":[]}`, `inputs [{"a":H}]`, `instances {"a":H}`, `instances {"a":[H]}`, `csv ",a\n0,H\n"`} {
			differs[signature][q] = named
		}
	}
	for signature, excused := range differs {
		t.Run(signature, func(t *testing.T) {
			took := 0
			for _, q := range all {
				theirs, our := score(t, oracle+"/"+signature+"/invocations", q), ours[q.name]
				if theirs.status != http.StatusOK || q.differs != "" {
					continue
				}
				took++
				alike := our.status == http.StatusOK && theirs.said() == our.said()
				if why := excused[q.name]; alike != (why == "") {
					t.Errorf("%s: %d %.300s\nMLflow: %.300s\nsaid to differ: %q", q.name, our.status, our.body, theirs.body, why)
				}
			}
			if took == 0 {
				t.Error("it has taken nothing")
			}
		})
	}
}

// TestMLflowBehind asks an MLflow server that is a function of its own what it is asked past Rouse: no byte of an answer may differ.
func TestMLflowBehind(t *testing.T) {
	dir := installed(t, "mlflow")
	const nowhere = "http://127.0.0.1:1" // the address for its model's requests
	u := start(t, dir, fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: served}
spec:
  template:
    metadata: {annotations: {rouse.dev/runtime: http, rouse.dev/start-timeout: 15m}}
    spec:
      containers:
      - image: example.com/any
        command: [env, --chdir=/, mlflow, models, serve, -m, %q, --env-manager, local, -h, 127.0.0.1, -p, $(PORT)]
        env: [{name: SERVER, value: %q}, {name: PYTHONHASHSEED, value: "0"}]
        readinessProbe: {httpGet: {path: /ping}}
`, filepath.Join(dir, "model"), nowhere))
	past := scoring(t, dir, filepath.Join(dir, "model"), nowhere)
	for _, path := range []string{"/invocations", "/serving-endpoints/served/invocations", "/endpoints/served/invocations"} {
		for _, q := range scorings("PAR1") {
			want, got := score(t, past+"/invocations", q), score(t, u.url+path, q)
			if got != want {
				t.Fatalf("%s at %s: %d %q\npast Rouse: %d %q", q.name, path, got.status, got.body, want.status, want.body)
			}
		}
	}
}

// TestMLflowClients uses mlflow.deployments' clients, for an MLflow gateway and for Databricks, and the client of a
// scoring server.
func TestMLflowClients(t *testing.T) {
	dir := installed(t, "mlflow")
	u := start(t, dir, pico)
	cmd := python(t, dir, "python", script(t, "mlflow_clients.py"), u.url, "pico")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	endpoint := `{"endpoint_type":"llm/v1/chat","endpoint_url":"` + u.url + `/endpoints/pico/invocations","limit":null,"model":{"name":"pico","provider":"rouse"},"name":"pico"}`
	want := map[string]string{
		"gateway list": "[" + endpoint + "]", "gateway get": endpoint, "gateway get nowhere": `404 Client Error`,
		"databricks list": `["pico"]`, "databricks get": `{"name":"pico","state":{"config_update":"NOT_UPDATING","ready":"READY"},"task":"llm/v1/chat"}`,
		"databricks stream": `"a b"`, "a judge's model": `"a b"`, "scoring ping": "null", "scoring version": `"dev"`, "scoring invoke": "1",
	}
	for _, kind := range []string{"gateway", "databricks"} {
		for asked, answer := range map[string]string{"chat": `"a b"`, "default": `"a b"`, "completion": `"text_completion"`, "embeddings": `"list"`, "nowhere": "does not exist (GET /v1/models lists the names)"} {
			want[kind+" predict "+asked] = answer
		}
	}
	for line := range strings.Lines(string(out)) {
		var told struct {
			Name   string
			Answer any
		}
		if err := json.Unmarshal([]byte(line), &told); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		answer, _ := json.Marshal(told.Answer) // it was JSON
		if w, found := want[told.Name]; !found || !strings.Contains(string(answer), w) {
			t.Errorf("%s: got %s, want %s", told.Name, answer, w)
		}
		delete(want, told.Name)
	}
	if len(want) > 0 {
		t.Errorf("not asked: %v: %s", want, stderr.String())
	}
}
