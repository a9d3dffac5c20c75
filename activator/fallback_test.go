package activator

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config/apikey"
)

// backed declares a function with a fallback.
func (b *bench) backed(name string, by ...api.ModelName) api.FunctionName {
	return b.function(name, func(f *api.Function) { f.Fallback, f.Runtime.Kind = by, api.RuntimeVLLM })
}

func (b *bench) failed(name api.FunctionName) {
	b.a.Fail(name, api.Errorf(503, api.CodeStartFailed, "it does not start"))
}

// TestFallback sends requests for a function that can't start: the next model answers, under its own name, and the
// access log and the metrics are its own.
func TestFallback(t *testing.T) {
	var log bytes.Buffer
	access, err := AccessLog("json", &log)
	if err != nil {
		t.Fatal(err)
	}
	b := startBench(t, nil, func(d *Deps) { d.Access = access })
	big := b.function("big", func(f *api.Function) {
		f.Fallback, f.Regions = []api.ModelName{"absent", "plain", "far", "open", "small"}, []string{"eu", "us"}
	})
	for name, change := range map[string]func(f *api.Function){
		"plain": func(f *api.Function) { f.Runtime.Kind = api.RuntimeHTTP }, "far": func(f *api.Function) { f.Regions = nil },
		"open": func(f *api.Function) { f.PassCredentials = true },
	} {
		b.instance(b.function(name, func(f *api.Function) { f.Regions = []string{"eu"}; change(f) }), name+"-0001", api.Awake)
	}
	small := b.instance(b.function("small", func(f *api.Function) { f.Regions = []string{"eu"} }), "small-0001", api.Awake)
	b.failed(big)
	resp, got := b.post(chatPath, `{"model":"big","n":1}`)
	if want := `small; reason="start_failed"`; resp.StatusCode != 200 || resp.Header.Get(headerFallback) != want {
		t.Errorf("got %s, %q, want 200 and %q", resp.Status, resp.Header.Get(headerFallback), want)
	}
	if !strings.Contains(got, `{\"model\":\"small\",\"n\":1}`) || small.served.Load() != 1 {
		t.Errorf("got %s, want an answer to a request that names small", got)
	}
	if got, want := b.metrics(), `rouse_activator_fallbacks_total{function="default/big",reason="start_failed"} 1`; !strings.Contains(got, want) {
		t.Errorf("the metrics have no %s", want)
	}
	b.ts.Close() // the line is written
	var line struct{ Request, Model, Function, Fallback string }
	if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Model != "small" || line.Function != "default/small" || line.Fallback != "big: start_failed" {
		t.Errorf("access log %s (%v), want the model and function small in place of big", log.Bytes(), err)
	}
	if got := b.a.Picks(line.Request); len(got) != 1 || got[0].Fallback != "big: start_failed" {
		t.Errorf("got the choices %+v", got)
	}
}

// TestWrongFallbacks checks what is said of fallbacks that help nothing.
func TestWrongFallbacks(t *testing.T) {
	b := startBench(t, nil)
	b.backed("self", "absent", "self", "good")
	b.backed("good")
	b.backed("one", "two")
	b.backed("two", "three")
	b.backed("three", "one", "good")
	for name, want := range map[api.FunctionName][]string{
		"default/self": {"the fallback absent of self is no model here", "the fallback self of self is that function itself"},
		"default/one":  {"the fallback two of one leads back to it"}, "default/three": {"the fallback one of three leads back to it"}, "default/good": nil,
	} {
		s, _ := b.a.Stats(name)
		if len(s.WrongFallbacks) != len(want) {
			t.Errorf("%s: got %q, want %q", name, s.WrongFallbacks, want)
			continue
		}
		for i, w := range want {
			if !strings.Contains(s.WrongFallbacks[i], w) {
				t.Errorf("%s: got %q, want %q", name, s.WrongFallbacks[i], w)
			}
		}
	}
}

// TestNoFallback sends requests that no other model may answer.
func TestNoFallback(t *testing.T) {
	b := startBench(t, nil)
	up := b.instance(b.backed("up", "small"), "up-0001", api.Awake)
	small := b.instance(b.function("small", nil), "small-0001", api.Awake)
	one, two := b.backed("one", "two"), b.backed("two", "one")
	b.failed(one)
	b.failed(two)
	up.chat = func(w http.ResponseWriter, _ *http.Request) {
		api.WriteError(w, api.Errorf(503, "runtime_error", "the runtime's own"))
	}
	for what, body := range map[string]string{"the runtime's own 503": `{"model":"up"}`, "a circle": `{"model":"one"}`} {
		resp, got := b.post(chatPath, body)
		if resp.StatusCode != 503 || what != "a circle" && resp.Header.Get(headerFallback) != "" {
			t.Errorf("%s: got %s %s %v, want a 503", what, resp.Status, got, resp.Header)
		}
		if named := "one: start_failed; nor did two answer in its place: "; strings.Contains(got, named) != (what == "a circle") {
			t.Errorf("%s: got %s", what, got)
		}
	}
	up.chat = func(w http.ResponseWriter, _ *http.Request) {
		streamEvents(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n")
		panic(http.ErrAbortHandler)
	}
	if resp, got := b.post(chatPath, `{"model":"up","stream":true}`); resp.StatusCode != 200 || !strings.Contains(got, api.CodeStreamCut) {
		t.Errorf("a stream that was cut: got %s %s", resp.Status, got)
	}
	up.chat = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	if resp, got := b.post(chatPath, `{"model":"up"}`); resp.StatusCode != 502 {
		t.Errorf("a request that breaks runtimes: got %s %s, want 502", resp.Status, got)
	}
	if n := small.served.Load(); n != 0 {
		t.Errorf("the fallback served %d, want none", n)
	}
}

// TestFallbackIsAllowed checks that a key's models bound the fallbacks, and what a runtime lacks.
func TestFallbackIsAllowed(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "a", Rights: apikey.Rights{Models: []string{"big", "engine", "small"}}}, apikey.Key{Name: "b", Rights: apikey.Rights{Models: []string{"big", "engine"}}})
	big := b.backed("big", "secret", "engine", "small")
	secret := b.instance(b.function("secret", nil), "secret-0001", api.Awake)
	engine := b.instance(b.function("engine", func(f *api.Function) { f.Runtime.Kind = api.RuntimeEngine }), "engine-0001", api.Awake)
	b.instance(b.backed("small"), "small-0001", api.Awake)
	b.failed(big)
	for key, want := range map[string]int{"k-a": 200, "k-b": 503} {
		if resp, got := b.post("/v1/audio/speech", `{"model":"big","input":"hi"}`, "Authorization", "Bearer "+key); resp.StatusCode != want {
			t.Errorf("%s: got %s %s, want %d", key, resp.Status, got, want)
		}
	}
	if n := secret.served.Load() + engine.served.Load(); n != 0 {
		t.Errorf("a model that may not, or can't answer, served %d", n)
	}
}

// TestFallbackToVariants: each variant of a fallback must be allowed, since any may get the request.
func TestFallbackToVariants(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "a", Rights: apikey.Rights{Models: []string{"src", "va", "vc", "vd"}}})
	src := b.backed("src", "secrets", "open")
	var never []*fakeInstance
	for name, change := range map[string]func(*api.Function){
		"va": func(f *api.Function) { f.VariantOf = "secrets" }, "vb": func(f *api.Function) { f.VariantOf = "secrets" },
		"vc": func(f *api.Function) { f.VariantOf = "open" }, "vd": func(f *api.Function) { f.VariantOf, f.PassCredentials = "open", true },
	} {
		never = append(never, b.instance(b.function(name, change), name+"-0001", api.Awake))
	}
	b.failed(src)
	if resp, got := b.post(chatPath, `{"model":"src"}`, "Authorization", "Bearer k-a"); resp.StatusCode != 503 {
		t.Errorf("got %s %s, want 503", resp.Status, got)
	}
	for _, i := range never {
		if i.served.Load() != 0 {
			t.Errorf("%s served", i.id)
		}
	}
}

// TestFallbackOfAHeldRequest checks that a request which waits goes on to the next model, and that a stream whose
// comments have begun is told in a comment.
func TestFallbackOfAHeldRequest(t *testing.T) {
	b := startBench(t, soon)
	big, small := b.backed("big", "small"), b.function("small", nil)
	var all sync.WaitGroup
	all.Go(func() {
		if _, got := b.post(chatPath, `{"model":"big","stream":true}`); !strings.Contains(got, ": rouse fallback=small; reason=\"no_capacity\"\n\n") || !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("got %q", got)
		}
	})
	b.commented()
	b.a.Fail(big, api.Errorf(503, api.CodeNoCapacity, "no memory"))
	b.eventually("it waits at the other", func() bool { s, _ := b.a.Stats(small); return s.Waiting == 1 })
	b.instance(small, "small-0001", api.Awake)
	all.Wait()
	if s, _ := b.a.Stats(big); s.Waiting+s.Running != 0 || s.HeldBytes != 0 {
		t.Errorf("the function is left with %+v", s)
	}
}

// TestFallbackOfAFullQueue checks that a request which finds no place to wait goes on at once.
func TestFallbackOfAFullQueue(t *testing.T) {
	b := startBench(t, nil)
	big := b.function("big", func(f *api.Function) { f.Fallback, f.Hold.Capacity = []api.ModelName{"small"}, 1 })
	b.instance(b.function("small", nil), "small-0001", api.Awake)
	var all sync.WaitGroup
	all.Go(func() { b.post(chatPath, `{"model":"big"}`) })
	b.eventually("one waits", func() bool { s, _ := b.a.Stats(big); return s.Waiting == 1 })
	resp, got := b.post(chatPath, `{"model":"big"}`)
	if want := `small; reason="hold_full"`; resp.StatusCode != 200 || resp.Header.Get(headerFallback) != want {
		t.Errorf("got %s %s, %q, want 200 and %q", resp.Status, got, resp.Header.Get(headerFallback), want)
	}
	b.failed(big)
	all.Wait()
}
