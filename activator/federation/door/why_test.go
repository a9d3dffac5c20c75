package door_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// until waits for a state of a function at a front door.
func (f *front) until(t *testing.T, name api.FunctionName, what string, is func(far admin.Far, why string) bool) admin.Far {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		var far admin.Far
		if list := f.Far(name); len(list) == 1 {
			far = list[0]
		}
		var why strings.Builder
		for _, d := range far.Why {
			why.WriteString(d.Action + " " + string(d.Instance) + ": " + d.Reason + "\n")
		}
		if is(far, why.String()) {
			return far
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-late:
			t.Fatalf("%s: %+v\n%s", what, far, why.String())
		}
	}
}

// TestWhy: for a function that waits at a front door, the explanation has where it may run, where it was asked for,
// and for each other cluster why not.
func TestWhy(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	west := declared("west", "w", "default/*")
	east := declared("east", "e", "default/*")
	east.Tenants = []string{"acme"}
	f := newFront(t, server, west, east, declared("south", "s", "other/*"), declared("attic", "a", "default/*"), declared("cellar", "c", "default/*"))
	begun, finish := make(chan struct{}, 3), make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	w := newCluster(t, "west", "w", pool, chat, f.at)
	t.Cleanup(end)
	w.answer = func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		begun <- struct{}{}
		<-finish
		_, _ = io.WriteString(rw, "{}")
	}
	newCluster(t, "east", "e", pool, chat, f.at)
	newCluster(t, "south", "s", pool, chat, f.at)
	cellar := newCluster(t, "cellar", "c", pool, api.Function{Name: "default/other", Model: "other", Concurrency: 1, Runtime: api.Runtime{Kind: api.RuntimeCommand}}, f.at)
	f.until(t, chat.Name, "all have come", func(far admin.Far, why string) bool {
		return len(far.Clusters) == 2 && strings.Contains(why, "cellar/agent-1: it does not have the function")
	})
	cellar.stop()
	f.until(t, chat.Name, "the cellar has gone", func(_ admin.Far, why string) bool { return strings.Contains(why, "cellar: it is away since ") })
	newCluster(t, "attic", "not its token", pool, chat, f.at)
	answered := make(chan struct{}, 3)
	for range 3 { // two places
		go func() { f.ask(t, "chat"); answered <- struct{}{} }()
	}
	<-begun
	<-begun
	f.until(t, chat.Name, "one waits", func(far admin.Far, why string) bool {
		return far.Function.Waiting == 1 && far.Function.Running == 2 &&
			strings.Contains(why, "held : 1 request waits at front door front, the oldest for ") &&
			strings.Contains(why, "chosen west/agent-1: awake and full: 2 run there") &&
			strings.Contains(why, "passed east/agent-1: it may not see requests of clients without a tenant; asleep") &&
			strings.Contains(why, "passed south/agent-1: its declaration at the front door does not allow the function") &&
			strings.Contains(why, "passed attic: it has not joined since this front door began") &&
			strings.Contains(why, "its token or certificate is not the declared one")
	})
	for _, c := range f.List() {
		if is := c.Rejected != ""; is != (c.Name == "attic") {
			t.Errorf("%s: rejected %q", c.Name, c.Rejected)
		}
	}
	end()
	for range 3 {
		<-answered
	}
	if f.Far("default/nothing") != nil {
		t.Error("a function is known that nobody has")
	}
}

// TestWokenElsewhere: a request that was held here and woke an instance in another cluster has one trace. The other
// cluster's part lies within the hold, whatever its clock.
func TestWokenElsewhere(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/*"))
	newCluster(t, "west", "w", pool, chat, f.at)
	f.known(t, chat.Name)
	f.ask(t, "chat")
	far := f.until(t, chat.Name, "the record of both", func(far admin.Far, _ string) bool { return len(far.Wakes) == 1 && far.Wakes[0].Cluster != "" })
	o := far.Wakes[0]
	by := map[string]api.Span{}
	for _, s := range o.Spans {
		by[s.Name] = s
	}
	hold, there, call := by[api.SpanHold], by["woken elsewhere"], by[api.SpanWake]
	if o.Cluster != "west" || o.Activator != "front" || o.Path != "hot" || there.Parent != hold.ID || call.Parent != there.ID ||
		there.After < hold.After || there.End() > hold.End() || call.After < there.After || call.End() > there.End() || by[api.SpanDispatch].ID == "" {
		t.Errorf("%+v", o)
	}
}
