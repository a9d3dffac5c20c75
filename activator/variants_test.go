package activator

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// variant declares a variant of the model "big" at a price.
func (b *bench) variant(name string, cost float64) api.FunctionName {
	return b.function(name, func(f *api.Function) { f.VariantOf, f.Cost = "big", cost })
}

const bigBody = `{"model":"big"}`

// answers checks that one of the variants answers a request for the model.
func (b *bench) answers(what string, by *fakeInstance) {
	b.t.Helper()
	before := by.served.Load()
	if resp, got := b.post(chatPath, bigBody); resp.StatusCode != 200 || by.served.Load() != before+1 {
		b.t.Errorf("%s: got %s %s, want an answer by %s", what, resp.Status, got, by.id)
	}
}

func TestVariantsByWhatTheyCanDoNow(t *testing.T) {
	b := startBench(t, nil)
	dear, cheap := b.variant("dear", 4), b.variant("cheap", 1)
	d, c := b.instance(dear, "dear-0001", api.Awake), b.instance(cheap, "cheap-0001", api.Asleep)
	b.answers("the other sleeps", d)
	b.grant(c, 1)
	b.answers("the other sleeps and may be woken", d)
	b.a.ObserveInstance(c.set(api.Awake))
	b.answers("both are awake: the cheaper", c)
	b.a.ObserveInstance(d.set(api.Asleep))
	b.a.ObserveInstance(c.set(api.Asleep))
	b.grant(d, 2)
	b.a.Fail(cheap, api.Errorf(503, api.CodeNoCapacity, "no memory"))
	b.answers("the cheaper is refused, the other may be woken", d)
	if n := d.wakes.Load(); n != 1 {
		t.Errorf("%d wakes, want 1", n)
	}
	// A variant's own name is one function's.
	b.a.ObserveInstance(c.set(api.Awake))
	if resp, _ := b.post(chatPath, `{"model":"cheap"}`); resp.StatusCode != 200 || c.served.Load() != 2 {
		t.Errorf("by its own name: %s, the cheap one served %d, want 2", resp.Status, c.served.Load())
	}
}

func TestVariantsAreListedOnce(t *testing.T) {
	b := startBench(t, nil)
	one := b.variant("one", 1)
	b.variant("two", 2)
	b.a.PutFunction(api.Function{Name: "other/three", VariantOf: "big"})
	b.instance(one, "one-0001", api.Awake)
	resp, err := http.Get(b.ts.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct{ Data []model }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, string(m.ID)+" "+string(m.Rouse.State))
	}
	if got, want := strings.Join(names, ", "), "big awake, one awake, three gone, two gone"; got != want {
		t.Errorf("models %s, want %s", got, want)
	}
	if f, err := b.a.names.Load().model("other/big", true); err != nil || f.Name != "other/three" {
		t.Errorf("other/big: %v, %v, want other/three", f, err)
	}
}

// TestVariantsAreNotAskedForTwice: requests that come while none is awake wait at one variant, so that only one is
// started.
func TestVariantsAreNotAskedForTwice(t *testing.T) {
	b := startBench(t, nil)
	dear, cheap := b.variant("dear", 4), b.variant("cheap", 1)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if resp, got := b.post(chatPath, bigBody); resp.StatusCode != 200 {
				t.Errorf("got %s %s", resp.Status, got)
			}
		})
	}
	waiting := func(name api.FunctionName) int { s, _ := b.a.Stats(name); return s.Waiting }
	b.eventually("all wait at the cheap one", func() bool { return waiting(cheap) == 5 && waiting(dear) == 0 })
	// The autoscaler starts the other one: the requests go there, four at once.
	i := b.instance(dear, "dear-0001", api.Awake)
	all.Wait()
	if n := i.served.Load(); n != 5 || i.most.Load() > 4 {
		t.Errorf("the dear one served %d, %d at once; want 5 and at most 4", n, i.most.Load())
	}
	for _, name := range []api.FunctionName{dear, cheap} {
		if s, _ := b.a.Stats(name); s.Waiting+s.Running != 0 || s.HeldBytes != 0 {
			t.Errorf("%s is left with %+v", name, s)
		}
	}
}

func TestVariantThatIsRefusedHandsItsRequestsOn(t *testing.T) {
	b := startBench(t, nil)
	dear, cheap := b.variant("dear", 4), b.variant("cheap", 1)
	var all sync.WaitGroup
	var got *http.Response
	all.Go(func() { got, _ = b.post(chatPath, bigBody) })
	waits := func(name api.FunctionName) func() bool {
		return func() bool { s, _ := b.a.Stats(name); return s.Waiting == 1 }
	}
	b.eventually("it waits at the cheap one", waits(cheap))
	b.a.Fail(cheap, api.Errorf(503, api.CodeStartFailed, "it does not start"))
	b.eventually("it waits at the dear one", waits(dear))
	// That one can't start either: the client is told.
	b.a.Fail(dear, api.Errorf(503, api.CodeNoCapacity, "no memory for the dear one"))
	all.Wait()
	if got.StatusCode != 503 {
		t.Errorf("got %s, want 503 when none of them can be had", got.Status)
	}
	if resp, body := b.post(chatPath, bigBody); resp.StatusCode != 503 || !strings.Contains(body, "it does not start") {
		t.Errorf("got %s %s, want 503 with the reason", resp.Status, body)
	}
}

func TestCommentsGoOnAtAnotherVariant(t *testing.T) {
	b := startBench(t, soon)
	dear, cheap := b.variant("dear", 4), b.variant("cheap", 1)
	answered := make(chan string)
	go func() {
		_, got := b.post(chatPath, `{"model":"big","stream":true}`)
		answered <- got
	}()
	b.commented()
	b.a.Fail(cheap, api.Errorf(503, api.CodeNoCapacity, "no memory"))
	b.commented()
	b.instance(dear, "dear-0001", api.Awake)
	if got := <-answered; !strings.Contains(got, ": rouse stage=") || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("got %q", got)
	}
}
