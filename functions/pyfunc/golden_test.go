package pyfunc_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/pyfunc"
	bodies "github.com/rouse-dev/rouse/internal/inbound"
)

// status returns an instance in a state.
func status(s api.State) func() api.InstanceStatus {
	return func() api.InstanceStatus { return api.InstanceStatus{State: s} }
}

// refusal returns the gate's refusal in a state.
func refusal(s api.State) func() *api.Error {
	return func() *api.Error {
		code := map[api.State]string{
			api.Starting: api.CodeLoading, api.Draining: api.CodeDraining, api.Asleep: api.CodeAsleep, api.Unhealthy: api.CodeUnhealthy, api.Gone: api.CodeShutdown,
		}[s]
		if code == "" {
			return nil
		}
		return api.Errorf(http.StatusServiceUnavailable, code, "the instance is %s", s).WithRetryAfter(3500 * time.Millisecond)
	}
}

func newHandler(t testing.TB, next http.HandlerFunc, change ...func(*pyfunc.Config)) *pyfunc.Handler {
	t.Helper()
	cfg := pyfunc.Config{Door: bodies.New(bodies.Config{}), Parallel: 8, Logger: slog.New(slog.DiscardHandler), Next: next, Status: status(api.Awake), Refusal: refusal(api.Awake), Model: "tiny", Version: "2.20.0", Engine: "vllm-engine"}
	for _, c := range change {
		c(&cfg)
	}
	return pyfunc.New(cfg)
}

// TestGolden runs the corpus; testdata/README.md describes its format.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) { runFile(t, name) })
	}
}

// runFile runs the cases of one file: each begins with a part "NAME/call".
func runFile(t *testing.T, name string) {
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]map[string]string{}
	var order []string
	for _, f := range archive.Files {
		test, part, found := strings.Cut(f.Name, "/")
		if !found || !slices.Contains([]string{"call", "state", "input", "runtime", "seen", "answer"}, part) {
			t.Fatalf("%s: the part %q is not NAME/PART", name, f.Name)
		}
		if parts[test] == nil {
			parts[test] = map[string]string{}
			order = append(order, test)
		}
		parts[test][part] = content(f.Data)
	}
	for _, test := range order {
		t.Run(test, func(t *testing.T) { runCase(t, parts[test]) })
	}
}

// content returns a part without its prose, and without the blank lines at its end.
func content(data []byte) string {
	var lines []string
	for line := range strings.SplitSeq(string(data), "\n") {
		if !strings.HasPrefix(line, "# ") {
			lines = append(lines, line)
		}
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func runCase(t *testing.T, parts map[string]string) {
	var seen []string
	h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, showRequest(t, r))
		play(t, w, parts["runtime"])
	}, func(c *pyfunc.Config) {
		c.Parallel = 1 // so that seen has an order
		if s := parts["state"]; s != "" {
			c.Status, c.Refusal = status(api.State(s)), refusal(api.State(s))
		}
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, readRequest(t, parts["call"]))
	if diff := cmp.Diff(parts["answer"], showAnswer(w)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(parts["seen"], strings.Join(seen, "\n\n")); diff != "" {
		t.Errorf("the runtime saw (-want +got):\n%s", diff)
	}
}

// readRequest reads "METHOD PATH", headers and, after a blank line, the body.
func readRequest(t *testing.T, text string) *http.Request {
	t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	line, headers, _ := strings.Cut(head, "\n")
	method, path, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for h := range strings.SplitSeq(headers, "\n") {
		if name, value, found := strings.Cut(h, ": "); found {
			r.Header.Add(name, value)
		}
	}
	return r
}

// visible replaces invisible characters.
var visible = strings.NewReplacer("\r", "␍", "\x00", "␀")

func showRequest(t *testing.T, r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.ContentLength != int64(len(body)) {
		t.Errorf("a body of %d bytes and length %d: %v", len(body), r.ContentLength, err)
	}
	return strings.TrimRight(r.Method+" "+r.URL.RequestURI()+"\n"+showHeader(r.Header)+"\n"+visible.Replace(string(body)), "\n")
}

func showHeader(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	return b.String()
}

// varying matches parts of answers that differ from run to run.
var varying = regexp.MustCompile(`(worker_pid\\":)\d+|(heartbeat\\":\\")[-\d :.]+`)

func showAnswer(w *httptest.ResponseRecorder) string {
	body := varying.ReplaceAllString(w.Body.String(), "${1}${2}*")
	h := w.Header().Clone()
	if body != w.Body.String() {
		h.Set("Content-Length", "*")
	}
	return strings.TrimRight(fmt.Sprintf("%d\n%s\n%s", w.Code, showHeader(h), body), "\n")
}

// play answers with "STATUS", headers and a body; a body's last line !abort is a broken connection.
func play(t *testing.T, w http.ResponseWriter, text string) {
	if text == "" {
		t.Error("the runtime was asked")
		return
	}
	body, abort := strings.CutSuffix(text, "\n!abort")
	if !abort && strings.Contains(body, "text/event-stream") {
		body += "\n\n"
	}
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 "+body)), nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		t.Error(err)
	}
	if abort {
		panic(http.ErrAbortHandler)
	}
}
