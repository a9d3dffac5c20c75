package runtime_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// fake is a server with scripted answers that records its requests.
type fake struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	answers map[string][]answer // by "METHOD path?query" or "METHOD path"; the last one stays
	calls   []string            // "METHOD path?query body"
}

type answer struct {
	status int
	body   string
}

const (
	token   = `{"choices":[{"text":"x","finish_reason":"length"}]}`
	noPath  = `{"detail":"Not Found"}`
	nothing = ``
)

// newFake returns a server that answers 404 as FastAPI does, unless told otherwise.
func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, answers: map[string][]answer{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) endpoint() api.Endpoint { return api.Endpoint(f.URL) }

// on sets the next answers to a call.
func (f *fake) on(call string, status int, body string) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[call] = append(f.answers[call], answer{status, body})
	return f
}

// forget removes the answers to a call.
func (f *fake) forget(call string) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.answers, call)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Error(err)
	}
	if len(raw) > 0 && r.Header.Get("Content-Type") != "application/json" {
		f.t.Errorf("%s %s: the content type is %q, which SGLang refuses", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(raw)))
	a := answer{404, noPath}
	for _, call := range []string{r.Method + " " + r.URL.RequestURI(), r.Method + " " + r.URL.Path} {
		if next := f.answers[call]; len(next) > 0 {
			a = next[0]
			if len(next) > 1 {
				f.answers[call] = next[1:]
			}
			break
		}
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// asked compares the calls since the last check with want.
func (f *fake) asked(want ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, f.calls); diff != "" {
		f.t.Errorf("calls (-want +got):\n%s", diff)
	}
	f.calls = nil
}

// probed returns the probe of a model that generates.
func probed(model string) string {
	return `POST /v1/completions {"max_tokens":1,"model":"` + model + `","prompt":"a","temperature":0}`
}

// adapter returns a runtime for the model "m" with the alias "n".
func adapter(t testing.TB, spec api.Runtime) runtime.Runtime {
	t.Helper()
	r, err := runtime.New(config(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func config(t testing.TB, spec api.Runtime) runtime.Config {
	return runtime.Config{
		Spec: spec, Model: "m", Aliases: []api.ModelName{"n"}, Dir: t.TempDir(), Concurrency: 4,
		Transport: http.DefaultTransport, Env: []string{"HOME=/h"},
	}
}

// launched returns the launch of a runtime with its port written as PORT, and its environment without the machine's own variables.
func launched(t *testing.T, r runtime.Runtime, model string) runtime.Launch {
	t.Helper()
	l, err := r.Launch(model)
	if err != nil {
		t.Fatal(err)
	}
	where, word := strings.TrimPrefix(string(l.Endpoint), "http://127.0.0.1:"), "PORT"
	if path, unix := l.Endpoint.Socket(); unix {
		where, word = path, "SOCKET"
	} else if where == string(l.Endpoint) || where == "0" {
		t.Errorf("it listens on %s, want a socket or a port of 127.0.0.1", l.Endpoint)
	}
	for _, list := range [][]string{l.Args, l.Env} {
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], where, word)
		}
	}
	l.Endpoint = api.Endpoint(strings.ReplaceAll(string(l.Endpoint), where, word))
	l.Env = slices.DeleteFunc(l.Env, func(kv string) bool { return kv == "NCCL_SHM_DISABLE=1" })
	return l
}

const (
	there  = api.Endpoint("http://127.0.0.1:PORT")
	inside = api.Endpoint("unix:SOCKET") // in a private folder
)

// request sends a body through a runtime's dialect.
func request(t *testing.T, r runtime.Runtime, path, body string) string {
	t.Helper()
	out := jsonfield.Open([]byte(body))
	if refused := r.Request(path, out); refused != nil {
		return refused.Message
	}
	return string(out.Bytes())
}

// write creates a file and returns its path.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
