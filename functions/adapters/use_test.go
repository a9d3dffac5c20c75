package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

func list(pairs ...string) (out []api.Adapter) {
	for _, p := range pairs {
		name, path, _ := strings.Cut(p, "=")
		out = append(out, api.Adapter{Name: api.ModelName(name), Path: path})
	}
	return out
}

func room(n int) func(*adapters.Config) { return func(c *adapters.Config) { c.Room = n } }

// states returns the adapters with their states, in order.
func (b *bench) states() string {
	var out []string
	for _, a := range b.List() {
		out = append(out, fmt.Sprintf("%s %s", a.Name, a.State))
	}
	return strings.Join(out, ", ")
}

// hold uses an adapter and returns a function that ends the use.
func (b *bench) hold(t *testing.T, name api.ModelName) func() {
	t.Helper()
	if got := b.Of(jsonfield.Open(fmt.Appendf(nil, `{"model":%q}`, name))); got != name {
		t.Fatalf("%s is taken for %q", name, got)
	}
	done, err := b.Hold(t.Context(), name)
	if err != nil {
		t.Fatalf("hold %s: %v", name, err)
	}
	return done
}

// TestDeclareTwiceAtOnce: a server and its autoscaler declare the same list. The second call finds it applied, and succeeds.
func TestDeclareTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restored(t, func(c *adapters.Config) { c.Declared = list("first=a") })
		b.runtime.unloads = make(chan struct{})
		ended := make(chan error)
		for range 2 {
			go func() { ended <- b.Declare(t.Context(), nil) }()
		}
		synctest.Wait()
		close(b.runtime.unloads)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if got := b.states(); got != "" {
			t.Errorf("it has %s", got)
		}
	})
}

func TestDeclare(t *testing.T) {
	b := restored(t, func(c *adapters.Config) { c.Declared = list("first=a") })
	if _, err := b.Register(t.Context(), "own", "a"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		list []api.Adapter
		want string
	}{
		{list("first=a", "second=b"), "first loaded, own loaded, second loaded"},
		{list("first=a", "second=b"), "first loaded, own loaded, second loaded"},
		{list("second=a"), "own loaded, second loaded"},
		{list("own=a"), "own loaded"},
		{nil, ""},
	} {
		if err := b.Declare(t.Context(), tc.list); err != nil || b.states() != tc.want {
			t.Errorf("%v: %v, %s; want %s", tc.list, err, b.states(), tc.want)
		}
	}
	want := []string{"load first", "load own", "load second", "unload first", "unload second", "load second", "unload second", "unload own"}
	if diff := cmp.Diff(want, b.runtime.calls); diff != "" || b.runtime.inside != 0 {
		t.Errorf("calls (-want +got):\n%s, %d places taken", diff, b.runtime.inside)
	}
}

func TestDeclareOneThatFails(t *testing.T) {
	b := restored(t)
	b.runtime.fails["bad"] = api.BadRequest("", "rank 64 is more than 16")
	err := b.Declare(t.Context(), list("bad=a", "gone=nothing", "good=b"))
	if err == nil || !strings.Contains(err.Error(), "rank 64") || b.states() != "good loaded" {
		t.Errorf("%v, %s", err, b.states())
	}
	delete(b.runtime.fails, "bad")
	if err := b.Declare(t.Context(), list("bad=a", "good=b")); err != nil || b.states() != "bad loaded, good loaded" {
		t.Errorf("again: %v, %s", err, b.states())
	}
	// An adapter that was declared later fails no wake.
	b.runtime.fails["bad"] = errors.New("the file is broken")
	if err := b.Restore(t.Context(), endpoint); err != nil || b.states() != "bad failed, good loaded" {
		t.Errorf("restore: %v, %s", err, b.states())
	}
	for _, tc := range [][]api.Adapter{list("m=a"), list("x=../../etc"), list("x="), list("a b=a")} {
		if err := b.Declare(t.Context(), append(list("good=b"), tc...)); err == nil {
			t.Errorf("%v is taken", tc)
		}
	}
}

func TestFixed(t *testing.T) {
	b := restored(t, func(c *adapters.Config) { c.Declared, c.Fixed = list("d=a"), true })
	if err := b.Declare(t.Context(), list("d=a")); err != nil {
		t.Errorf("what it has: %v", err)
	}
	for _, other := range [][]api.Adapter{nil, list("d=b"), list("d=a", "x=b")} {
		if err := b.Declare(t.Context(), other); err == nil || api.AsError(err).Status != 501 || b.states() != "d loaded" {
			t.Errorf("%v: %v, %s", other, err, b.states())
		}
	}
}

// If the runtime's options use all of its room, registering an adapter is refused at once.
func TestNoRoom(t *testing.T) {
	b := restored(t, room(-1))
	if _, err := b.Register(t.Context(), "x", "a"); err == nil || api.AsError(err).Status != 400 || !strings.Contains(err.Error(), "--max-loras") || b.states() != "" {
		t.Errorf("registered: %v, %s", err, b.states())
	}
}

// An adapter without room is loaded on demand, in the place of the least recently used one.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restored(t, room(2), func(c *adapters.Config) { c.Declared = list("x=a", "y=a", "z=b") })
		if got := b.states(); got != "x loaded, y loaded, z standby" {
			t.Fatal(got)
		}
		b.hold(t, "x")()
		b.hold(t, "z")()
		if got := b.states(); got != "x loaded, y standby, z loaded" {
			t.Errorf("y is the one to go: %s", got)
		}
		endX := b.hold(t, "x")
		b.hold(t, "y")()
		if got := b.states(); got != "x loaded, y loaded, z standby" {
			t.Errorf("x is in use, though not used last: %s", got)
		}
		endY := b.hold(t, "y")
		waiting, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := b.Hold(waiting, "z")
			got <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) || b.states() != "x loaded, y loaded, z standby" {
			t.Errorf("both are in use, and the client left: %v, %s", err, b.states())
		}
		go func() {
			done, err := b.Hold(t.Context(), "z")
			if err == nil {
				done()
			}
			got <- err
		}()
		synctest.Wait()
		endX()
		if err := <-got; err != nil || b.states() != "x standby, y loaded, z loaded" {
			t.Errorf("x was given free: %v, %s", err, b.states())
		}
		time.Sleep(time.Second)
		endY()
		if a, err := b.Register(t.Context(), "w", "b"); err != nil || a.State != adapters.Loaded || b.states() != "w loaded, x standby, y loaded, z standby" {
			t.Errorf("a new one takes the place of the oldest: %v, %v, %s", a, err, b.states())
		}
		// A restarted runtime loads the most recently used adapters.
		b.runtime.has = map[api.ModelName]string{}
		if err := b.Restore(t.Context(), endpoint); err != nil || len(b.runtime.has) != 2 || b.states() != "w loaded, x standby, y loaded, z standby" {
			t.Errorf("restored: %v, %v, %s", err, b.runtime.has, b.states())
		}
		if last := b.standby[len(b.standby)-1]; cmp.Diff([]api.ModelName{"x", "z"}, last) != "" {
			t.Errorf("told of standby: %v", last)
		}
	})
}

// A removed adapter is unloaded when its last request ends, and no new request may use it.
func TestRemoveWhileInUse(t *testing.T) {
	b := restored(t, func(c *adapters.Config) { c.Declared = list("x=a") })
	one, two := b.hold(t, "x"), b.hold(t, "x")
	if err := b.Remove(t.Context(), "x"); err != nil || b.states() != "" || b.runtime.has["x"] == "" {
		t.Errorf("%v, %s, the runtime has %v", err, b.states(), b.runtime.has)
	}
	if _, err := b.Hold(t.Context(), b.Of(jsonfield.Open([]byte(`{"model":"x"}`)))); err == nil || api.AsError(err).Status != 404 {
		t.Errorf("another request: %v, want 404", err)
	}
	if err := b.Remove(t.Context(), "x"); err == nil || api.AsError(err).Status != 404 {
		t.Errorf("again: %v, want 404", err)
	}
	one()
	if b.runtime.has["x"] == "" {
		t.Error("it is gone while a request uses it")
	}
	two()
	if len(b.runtime.has) != 0 || !b.Empty() {
		t.Errorf("after the last: %v", b.runtime.has)
	}
}

// A removed adapter that a request still uses takes room in the runtime.
func TestRemovedTakesRoom(t *testing.T) {
	b := restored(t, room(1), func(c *adapters.Config) { c.Declared = list("x=a") })
	end := b.hold(t, "x")
	if err := b.Remove(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if a, err := b.Register(t.Context(), "y", "a"); err != nil || a.State != adapters.Standby || len(b.runtime.has) != 1 {
		t.Errorf("beside it: %v, %v, the runtime has %v", a, err, b.runtime.has)
	}
	held := make(chan error)
	go func() {
		_, err := b.Hold(t.Context(), "y")
		held <- err
	}()
	end()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	if len(b.runtime.has) != 1 || b.states() != "y loaded" || b.runtime.has["y"] == "" {
		t.Errorf("after it: %s, the runtime has %v", b.states(), b.runtime.has)
	}
}

// TestUseUnderChanges: whatever runs concurrently, no request uses an unloaded adapter, and no more are loaded than fit.
func TestUseUnderChanges(t *testing.T) {
	b := restored(t, room(2), func(c *adapters.Config) { c.Declared = list("x=a", "y=a", "z=b", "w=b") })
	names := []api.ModelName{"x", "y", "z", "w"}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for range 200 {
				name := names[rng.IntN(len(names))]
				if n == 0 {
					_ = b.Remove(t.Context(), name)
					_, _ = b.Register(t.Context(), name, "a")
					continue
				}
				done, err := b.Hold(t.Context(), name)
				if err != nil {
					if api.AsError(err).Status != 404 {
						t.Errorf("hold %s: %v", name, err)
					}
					continue
				}
				b.runtime.mu.Lock()
				if _, has := b.runtime.has[name]; !has {
					t.Errorf("%s is used and not loaded: %v", name, b.runtime.has)
				}
				b.runtime.mu.Unlock()
				done()
			}
		})
	}
	all.Wait()
	if len(b.runtime.has) > 2 || b.runtime.inside != 0 {
		t.Errorf("the runtime has %v, %d places taken", b.runtime.has, b.runtime.inside)
	}
}

// Adapters that a runtime has loaded itself are known while the runtime lists them, are never loaded or unloaded, and can't be removed.
func TestBrought(t *testing.T) {
	base := `{"id":"served","root":"org/base","parent":null},`
	runtime := answers{
		`{"data":[` + base + `{"id":"theirs","root":"/loras/theirs","parent":"served"},{"id":"d","parent":"served"},{"id":"alias","parent":"served"},{"id":"a b","parent":"served"}]}`,
		`{"data":[` + base + `{"id":"theirs","parent":"served"},{"id":"more","parent":"served"}]}`, "<html>", `{"data":[` + base + `{"id":"more","parent":"served"}]}`,
	}
	b := set(t, room(1), func(c *adapters.Config) { c.Transport, c.Brings, c.Declared = &runtime, true, list("d=a") })
	b.Poll(t.Context()) // before there is a runtime: nothing
	if err := b.Restore(t.Context(), endpoint); err != nil || b.states() != "d loaded, theirs loaded" {
		t.Fatalf("%v, %s", err, b.states())
	}
	b.hold(t, "theirs")()
	if err := b.Remove(t.Context(), "theirs"); err == nil || api.AsError(err).Status != 409 {
		t.Errorf("remove: %v, want 409", err)
	}
	if err := b.Declare(t.Context(), nil); err != nil || b.states() != "theirs loaded" || !b.Empty() {
		t.Errorf("%v, %s; nothing is to be restored", err, b.states())
	}
	for _, want := range []string{"more loaded, theirs loaded", "more loaded, theirs loaded", "more loaded"} {
		if b.Poll(t.Context()); b.states() != want {
			t.Errorf("%s, want %s", b.states(), want)
		}
	}
	if diff := cmp.Diff([]string{"load d", "unload d"}, b.runtime.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
