package adapters_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/adapters"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

const endpoint api.Endpoint = "http://127.0.0.1:1"

// runtime is a fake with adapters and a gate.
type runtime struct {
	mu      sync.Mutex
	has     map[api.ModelName]string
	fails   map[api.ModelName]error
	refused *api.Error
	unloads chan struct{} // an unload waits for it; nil: it does not
	inside  int
	calls   []string
}

func (r *runtime) LoadAdapter(_ context.Context, e api.Endpoint, a api.Adapter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "load "+string(a.Name))
	if err := r.fails[a.Name]; err != nil || e != endpoint {
		return errors.Join(err, fmt.Errorf("at %q", e))
	}
	r.has[a.Name] = a.Path
	return nil
}

func (r *runtime) UnloadAdapter(_ context.Context, _ api.Endpoint, name api.ModelName) error {
	if r.unloads != nil {
		<-r.unloads
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "unload "+string(name))
	if err := r.fails[name]; err != nil {
		return err
	}
	delete(r.has, name)
	return nil
}

func (r *runtime) Enter() (string, *api.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused != nil {
		return "", r.refused
	}
	r.inside++
	return string(endpoint), nil
}

func (r *runtime) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside--
}

func (r *runtime) refuse(code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = nil
	if code != "" {
		r.refused = api.Errorf(503, code, "not now: %s", code)
	}
}

// bench is a registry and its runtime.
type bench struct {
	*adapters.Registry
	runtime *runtime
	root    string
	changes [][]api.ModelName
	standby [][]api.ModelName
}

func set(t *testing.T, change ...func(*adapters.Config)) *bench {
	t.Helper()
	b := &bench{runtime: &runtime{has: map[api.ModelName]string{}, fails: map[api.ModelName]error{}}, root: t.TempDir()}
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(b.root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cfg := adapters.Config{
		Model: "m", Aliases: []api.ModelName{"alias"}, Root: b.root, Loader: b.runtime, Gate: b.runtime,
		Changed: func(loaded, standby []api.ModelName) {
			b.changes, b.standby = append(b.changes, loaded), append(b.standby, standby)
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	r, err := adapters.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Registry = r
	return b
}

// restored is set with a runtime that accepts requests.
func restored(t *testing.T, change ...func(*adapters.Config)) *bench {
	t.Helper()
	b := set(t, change...)
	if err := b.Restore(t.Context(), endpoint); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) call(method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func TestLifeOfAnAdapter(t *testing.T) {
	b := restored(t)
	step := func(method, path, body string, status int, text string) {
		t.Helper()
		if got, answer := b.call(method, path, body); got != status || !strings.Contains(answer, text) {
			t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, got, answer, status, text)
		}
	}
	step("GET", "/adapters/info", "", 200, `{"config":{"enabled":true},"state":{"activeAdapters":[]},"adapters":[]}`)
	step("POST", "/adapters/org/lora", `{"path":"a"}`, 200, `{"name":"org/lora","path":"a","parent":"m","state":"loaded"}`)
	step("POST", "/adapters/org/lora", `{"path":"a"}`, 200, `"loaded"`)
	step("POST", "/adapters/org/lora", `{"path":"b"}`, 409, "delete it first")
	step("GET", "/adapters/info", "", 200, `"activeAdapters":["org/lora"]},"adapters":[{"name":"org/lora","parent":"m","state":"loaded"}]}`)
	want, _ := filepath.EvalSymlinks(filepath.Join(b.root, "a"))
	if got := b.runtime.has["org/lora"]; got != want {
		t.Errorf("the runtime got the path %q, want %q", got, want)
	}
	for body, name := range map[string]api.ModelName{`{"model":"org/lora"}`: "org/lora", `{"model":"org\/lora"}`: "org/lora", `{"model":"m"}`: "", `[]`: "", `{"model":1}`: ""} {
		if got := b.Of(jsonfield.Open([]byte(body))); got != name {
			t.Errorf("%s is for %q, want %q", body, got, name)
		}
	}
	step("DELETE", "/adapters/org/lora", "", 204, "")
	step("DELETE", "/adapters/org/lora", "", 404, "there is no adapter org/lora")
	if diff := cmp.Diff([][]api.ModelName{{"org/lora"}, {}}, b.changes); diff != "" || len(b.runtime.has) > 0 || b.runtime.inside != 0 {
		t.Errorf("changes (-want +got):\n%s\nthe runtime has %v, %d places taken", diff, b.runtime.has, b.runtime.inside)
	}
	if got := b.Of(jsonfield.Open([]byte(`{"model":"org/lora"}`))); got != "" {
		t.Errorf("an unloaded adapter is still known: %s", got)
	}
}

func TestRegisterRefuses(t *testing.T) {
	b := restored(t)
	outside := t.TempDir()
	for link, target := range map[string]string{"out": outside, "loop": "loop", "ok": "a"} {
		if err := os.Symlink(target, filepath.Join(b.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	b.runtime.fails["bad"] = api.BadRequest("", "rank 64 is more than 16")
	b.runtime.fails["never"] = fmt.Errorf("it takes none: %w", errors.ErrUnsupported)
	b.runtime.fails["dead"] = errors.New("connection reset")
	for _, tc := range []struct {
		id, body string
		status   int
		want     string
	}{
		{"x", `{"path":"../a"}`, 403, "outside of the function's folder"},
		{"x", `{"path":"a/../../a"}`, 403, "outside"},
		{"x", `{"path":"/etc"}`, 403, "outside"},
		{"x", fmt.Sprintf(`{"path":%q}`, outside), 403, "outside"},
		{"x", `{"path":"."}`, 403, "outside"},
		{"x", `{"path":"out"}`, 403, "outside"},
		{"x", `{"path":"out/nothing"}`, 404, "is not there"},
		{"x", `{"path":"nothing"}`, 404, "nothing is not there"},
		{"x", `{"path":"loop"}`, 400, "can't be opened"},
		{"x", `{"path":"a\u0000"}`, 400, "zero byte"},
		{"x", `{"path":""}`, 400, "is empty"},
		{"x", `{}`, 400, "is empty"},
		{"x", `{"path":"hf://org/x"}`, 400, "not fetched here"},
		{"x", `{"pth":"a"}`, 400, "unknown field"},
		{"x", `{"path":"a"}{}`, 400, "something follows"},
		{"x", ``, 400, "the body is not what is wanted"},
		{"x", `{"path":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "larger than the limit"},
		{"m", `{"path":"a"}`, 409, "a name of the model itself"},
		{"alias", `{"path":"a"}`, 409, "a name of the model itself"},
		{"info", `{"path":"a"}`, 400, "can't be named info"},
		{"x%20y", `{"path":"a"}`, 400, "letters, digits"},
		{"x,y", `{"path":"a"}`, 400, "letters, digits"},
		{strings.Repeat("x", 300), `{"path":"a"}`, 400, "300 characters"},
		{"bad", `{"path":"a"}`, 400, "rank 64"},
		{"never", `{"path":"a"}`, 501, "it takes none"},
		{"dead", `{"path":"a"}`, 502, "connection reset"},
	} {
		status, answer := b.call("POST", "/adapters/"+tc.id, tc.body)
		var e struct{ Error struct{ Message string } }
		if err := json.Unmarshal([]byte(answer), &e); err != nil || status != tc.status || !strings.Contains(e.Error.Message, tc.want) {
			t.Errorf("%.20s %.60s: %d %s, want %d %q", tc.id, tc.body, status, answer, tc.status, tc.want)
		}
	}
	if list := b.List(); len(list) != 0 || b.runtime.inside != 0 {
		t.Errorf("after refusals there are %v, %d places taken", list, b.runtime.inside)
	}
	if status, answer := b.call("POST", "/adapters/x", `{"path":"ok"}`); status != 200 || !strings.HasSuffix(b.runtime.has["x"], "/a") {
		t.Errorf("a link within the folder: %d %s, the runtime has %v", status, answer, b.runtime.has)
	}
}

func TestOtherPathsAndMethods(t *testing.T) {
	b := restored(t)
	for call, want := range map[string]int{"GET /adapters/": 404, "GET /adapters": 200, "DELETE /adapters": 405, "POST /adapters": 400, "PUT /adapters/x": 405, "GET /adapters/x": 405, "PATCH /adapters/info": 405, "DELETE /adapters/info": 404} {
		method, path, _ := strings.Cut(call, " ")
		if got, answer := b.call(method, path, "{}"); got != want {
			t.Errorf("%s: %d %s, want %d", call, got, answer, want)
		}
	}
}

// A sleeping runtime is not woken for an adapter: it loads it when it wakes.
func TestPending(t *testing.T) {
	b := restored(t)
	b.call("POST", "/adapters/old", `{"path":"b"}`)
	b.runtime.refuse(api.CodeAsleep)
	if status, answer := b.call("POST", "/adapters/x", `{"path":"a"}`); status != 202 || !strings.Contains(answer, `"pending"`) {
		t.Errorf("%d %s, want 202 pending", status, answer)
	}
	if status, answer := b.call("POST", "/adapters/y", `{"path":"nothing"}`); status != 404 {
		t.Errorf("%d %s: a missing path is known at once", status, answer)
	}
	if status, answer := b.call("DELETE", "/adapters/old", ""); status != 204 {
		t.Errorf("%d %s", status, answer)
	}
	if len(b.runtime.calls) != 1 || b.Of(jsonfield.Open([]byte(`{"model":"x"}`))) != "" {
		t.Errorf("the sleeper was asked: %v", b.runtime.calls)
	}
	b.runtime.refuse(api.CodeLoading)
	if err := b.Restore(t.Context(), endpoint); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"load old", "unload old", "load x"}, b.runtime.calls); diff != "" || b.Of(jsonfield.Open([]byte(`{"model":"x"}`))) != "x" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBusyIsTriedAgain(t *testing.T) {
	b := restored(t)
	b.runtime.refuse(api.CodeBusy)
	if status, answer := b.call("POST", "/adapters/x", `{"path":"a"}`); status != 503 || len(b.List()) != 0 {
		t.Errorf("%d %s, list %v; want 503 and nothing", status, answer, b.List())
	}
}

// Between the end of Restore and the first request the gate is still shut.
func TestRegisterWhileTheGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restored(t)
		b.runtime.refuse(api.CodeLoading)
		time.AfterFunc(20*time.Millisecond, func() { b.runtime.refuse("") })
		if a, err := b.Register(t.Context(), "x", "a"); err != nil || a.State != adapters.Loaded {
			t.Errorf("%+v, %v; want it loaded", a, err)
		}
		b.runtime.refuse(api.CodeLoading)
		if a, err := b.Register(t.Context(), "y", "b"); err != nil || a.State != adapters.Pending {
			t.Errorf("%+v, %v; want it pending", a, err)
		}
	})
}

func TestDeclared(t *testing.T) {
	declared := func(paths ...string) func(*adapters.Config) {
		return func(c *adapters.Config) {
			for i, p := range paths {
				c.Declared = append(c.Declared, api.Adapter{Name: api.ModelName(fmt.Sprintf("d%d", i)), Path: p})
			}
		}
	}
	b := restored(t, declared("b", "a"))
	if got := b.List(); len(got) != 2 || got[0].State != adapters.Loaded || got[1].State != adapters.Loaded {
		t.Errorf("got %+v", got)
	}
	if err := set(t, declared("x")).Restore(t.Context(), endpoint); err == nil || !strings.Contains(err.Error(), "load adapter d0") {
		t.Errorf("a missing one: %v", err)
	}
	b = restored(t, declared("/only/the/sidecar/sees/it"), func(c *adapters.Config) { c.Root = "" })
	if b.runtime.has["d0"] != "/only/the/sidecar/sees/it" {
		t.Errorf("the runtime has %v", b.runtime.has)
	}
	if status, answer := b.call("POST", "/adapters/x", `{"path":"a"}`); status != 403 || !strings.Contains(answer, "adapter root") {
		t.Errorf("without a folder: %d %s", status, answer)
	}
	for want, d := range map[string][]api.Adapter{"twice": {{Name: "x", Path: "a"}, {Name: "x", Path: "b"}}, "the model itself": {{Name: "m", Path: "a"}}, "is empty": {{Name: "x"}}, "lies outside": {{Name: "x", Path: "../x"}}} {
		_, err := adapters.New(adapters.Config{Model: "m", Loader: b.runtime, Gate: b.runtime, Root: t.TempDir(), Declared: d})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", d, err, want)
		}
	}
}

// A registered adapter that fails when the runtime wakes does not prevent the wake.
func TestARegisteredOneFailsLater(t *testing.T) {
	b := restored(t)
	b.call("POST", "/adapters/x", `{"path":"a"}`)
	b.runtime.fails["x"] = errors.New("the file is broken")
	if err := b.Restore(t.Context(), endpoint); err != nil {
		t.Fatal(err)
	}
	if got := b.List(); len(got) != 1 || got[0].State != adapters.Failed || !strings.Contains(got[0].Message, "the file is broken") {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff([][]api.ModelName{{"x"}, {}}, b.changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestReferences(t *testing.T) {
	b := restored(t, func(c *adapters.Config) {
		c.Fetch = func(_ context.Context, ref string) (string, error) {
			if ref == "hf://org/x" {
				return "/cache/x", nil
			}
			return "", api.Errorf(404, "", "%s is not there", ref)
		}
	})
	if status, answer := b.call("POST", "/adapters/x", `{"path":"hf://org/x"}`); status != 200 || b.runtime.has["x"] != "/cache/x" {
		t.Errorf("%d %s, the runtime has %v", status, answer, b.runtime.has)
	}
	if status, answer := b.call("POST", "/adapters/y", `{"path":"hf://org/y"}`); status != 404 {
		t.Errorf("%d %s, want the fetch's own error", status, answer)
	}
}

// TestAWakeDoesNotWaitForAFetch registers an adapter that is fetched while the runtime wakes: the wake ends first.
func TestAWakeDoesNotWaitForAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := make(chan struct{})
		b := set(t, func(c *adapters.Config) {
			c.Fetch = func(context.Context, string) (string, error) {
				<-fetched
				return "/cache/x", nil
			}
		})
		registered := make(chan error, 1)
		go func() {
			_, err := b.Register(t.Context(), "x", "hf://org/x")
			registered <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Restore(ctx, endpoint); err != nil {
			t.Errorf("the wake waits for the fetch: %v", err)
		}
		close(fetched)
		if err := <-registered; err != nil {
			t.Error(err)
		}
		if got := b.List(); len(got) != 1 || got[0].State != adapters.Loaded || b.runtime.has["x"] != "/cache/x" {
			t.Errorf("the adapters are %+v, want x, loaded from the cache", got)
		}
	})
}

// answers are a runtime's answers, in turn.
type answers []string

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	if len(*a) == 0 {
		return nil, errors.New("no answer is left")
	}
	w := httptest.NewRecorder()
	_, _ = w.WriteString((*a)[0])
	*a = (*a)[1:]
	return w.Result(), nil
}

func TestModels(t *testing.T) {
	b := set(t, func(c *adapters.Config) { c.Declared = []api.Adapter{{Name: "lora", Path: "a"}} })
	type model struct {
		ID, Root, Parent string
		Len              int `json:"max_model_len"`
	}
	get := func(path string) (int, []model, string) {
		w := httptest.NewRecorder()
		b.Models(w, httptest.NewRequest("GET", path, nil))
		var list struct{ Data []model }
		_ = json.Unmarshal(w.Body.Bytes(), &list)
		return w.Code, list.Data, w.Body.String()
	}
	want := []model{{"m", "m", "", 0}, {"alias", "m", "", 0}, {"lora", "lora", "m", 0}}
	status, got, raw := get("/v1/models") // before there is a runtime
	if diff := cmp.Diff(want, got); status != 200 || diff != "" {
		t.Errorf("%d %s (-want +got):\n%s", status, raw, diff)
	}
	if err := b.Restore(t.Context(), "http://127.0.0.1:2"); err == nil {
		t.Error("the fake runtime lives at another endpoint")
	}
	runtime := answers{"<html>", `{"object":"list","data":[{"id":"x","max_model_len":1},{"id":"m","max_model_len":4096}]}`}
	b = set(t, func(c *adapters.Config) { c.Transport = &runtime })
	for _, want := range []int{0, 4096, 4096} { // an answer that is missing at one wake may come at the next
		if err := b.Restore(t.Context(), endpoint); err != nil {
			t.Fatal(err)
		}
		if _, got, raw := get("/v1/models"); len(got) != 2 || got[0].Len != want {
			t.Errorf("want the context length %d: %s", want, raw)
		}
	}
	if status, _, raw := get("/v1/models/alias"); status != 200 || !strings.Contains(raw, `"root":"m"`) {
		t.Errorf("%d %s", status, raw)
	}
	if status, _, raw := get("/v1/models/nobody"); status != 404 || !strings.Contains(raw, api.CodeModelNotFound) {
		t.Errorf("%d %s", status, raw)
	}
}

// FuzzPath: whatever the path, the runtime gets none outside of the folder.
func FuzzPath(f *testing.F) {
	base, err := filepath.EvalSymlinks(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	root := filepath.Join(base, "root")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "a", "b"), 0o700), os.Mkdir(filepath.Join(base, "rootless"), 0o700),
		os.Symlink("..", filepath.Join(root, "up")), os.Symlink("/", filepath.Join(root, "top")),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	for _, p := range []string{"a", "a/b", "../rootless", "up/rootless", "top/etc", "/etc", root + "/a", root + "less", "a/../..", "\x00", "up/root/a"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		rt := &runtime{has: map[api.ModelName]string{}}
		r, err := adapters.New(adapters.Config{Model: "m", Root: root, Loader: rt, Gate: rt})
		if err == nil {
			err = r.Restore(t.Context(), endpoint)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.Register(t.Context(), "x", path); err != nil {
			return
		}
		if got := rt.has["x"]; !strings.HasPrefix(got, root+"/") || strings.Contains(got, "..") {
			t.Errorf("%q became %q", path, got)
		}
	})
}
