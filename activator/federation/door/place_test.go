package door_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// TestCreatedWhileItsRequestWaits: a function that no cluster has is created where its selector matches, and answers.
// It is removed after long disuse there, and created again on demand.
func TestCreatedWhileItsRequestWaits(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	west, east := declared("west", "west", "default/*"), declared("east", "east", "default/*")
	west.Labels, east.Labels = map[string]string{"gpu": "a100"}, map[string]string{"gpu": "h100"}
	f := newFront(t, server, west, east)
	w := newSite(t, "west", pool, siteConfig{accept: everything}, f.at)
	e := newSite(t, "east", pool, siteConfig{accept: everything}, f.at)
	if err := f.Place(placed("gpu in (h100, h200)")); err != nil {
		t.Fatal(err)
	}
	f.joined(t, "default/chat", "west", "east")
	for range 2 {
		if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"east"}` {
			t.Fatalf("%d %s", status, body)
		}
		if got := <-e.changes; got != "apply default/chat" {
			t.Error(got)
		}
		e.unload("default/chat")
		if got := <-e.changes; got != "remove default/chat" {
			t.Error(got)
		}
	}
	if w.count() != 0 || e.count() != 0 {
		t.Errorf("left behind: %d in the west, %d in the east", w.count(), e.count())
	}
	if !f.activator.Declared("default/chat") {
		t.Error("it is not known any more")
	}
}

// TestRefusedElsewhere: a cluster that refuses a function gives a reason; then the next one is asked; when none is
// left the client gets all reasons.
func TestRefusedElsewhere(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	west, east, north, south := declared("west", "west", "default/*"), declared("east", "east", "default/*"), declared("north", "north", "other/*"), declared("south", "south", "default/*")
	east.Cost = 10 // asked last
	f := newFront(t, server, west, east, north, south)
	w := newSite(t, "west", pool, siteConfig{accept: everything}, f.at)
	w.refuses = api.Errorf(http.StatusConflict, api.CodeStartFailed, "its disk is full")
	e := newSite(t, "east", pool, siteConfig{accept: everything}, f.at)
	n := newSite(t, "north", pool, siteConfig{accept: everything}, f.at)
	s := newSite(t, "south", pool, siteConfig{}, f.at)
	if err := f.Place(placed(door.LabelCluster)); err != nil {
		t.Fatal(err)
	}
	f.joined(t, "default/chat", "west", "east", "north")
	if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"east"}` {
		t.Fatalf("%d %s", status, body)
	}
	if n.count() != 0 || s.count() != 0 {
		t.Error("it was created where it may not be")
	}
	if err := f.Place(placed(door.LabelCluster + " in (west, north, south)")); err != nil {
		t.Fatal(err)
	}
	e.stop()
	status, body := f.ask(t, "chat")
	for _, want := range []string{"its disk is full", "among the functions", "--accept-functions", `"code":"no_capacity"`} {
		if status != 503 || !strings.Contains(body, want) {
			t.Errorf("%d %s, want 503 and %q", status, body, want)
		}
	}
}

// TestCreatedOnce: a function that is declared in a cluster is used and never removed; two front doors with one
// manifest share one function, which exists while one of them needs it.
func TestCreatedOnce(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	a := newFrontNamed(t, "a", server, declared("west", "west", "default/*"))
	b := newFrontNamed(t, "b", server, declared("west", "west", "default/*"))
	w := newSite(t, "west", pool, siteConfig{accept: everything, own: []api.FunctionName{"default/own"}}, a.at, b.at)
	own := placed("rouse.dev/cluster")
	own.Name, own.Model = "default/own", "own"
	for _, f := range []*front{a, b} {
		for _, spec := range []api.Function{placed("rouse.dev/cluster"), own} {
			if err := f.Place(spec); err != nil {
				t.Fatal(err)
			}
			f.joined(t, spec.Name, "west")
		}
	}
	for _, model := range []string{"own", "chat"} {
		for _, f := range []*front{a, b} {
			if status, body := f.ask(t, model); status != 200 {
				t.Errorf("%s: %d %s", model, status, body)
			}
		}
	}
	if w.count() != 2 {
		t.Errorf("%d functions, want 2", w.count())
	}
	w.unload("default/own")
	w.unload("default/chat")
	applied, removed := 0, 0 // by b too, if it was asked before it knew of the function
	for applied == 0 || removed < applied {
		switch got := <-w.changes; got {
		case "apply default/chat":
			applied++
		case "remove default/chat":
			removed++
		default:
			t.Errorf("change %d: %s", applied+removed+1, got)
		}
	}
	if applied > 2 {
		t.Errorf("it was created %d times by two", applied)
	}
	if got := w.count(); got != 1 || len(w.changes) > 0 { // own was unloaded before
		t.Errorf("%d functions are left, and %d changes were made besides", got, len(w.changes))
	}
}

// TestCreatedByBoth: two front doors that need a function at once share one, which exists until neither needs it.
func TestCreatedByBoth(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	fronts := []*front{newFrontNamed(t, "a", server, declared("west", "west", "default/*")), newFrontNamed(t, "b", server, declared("west", "west", "default/*"))}
	for _, f := range fronts {
		if err := f.Place(placed("rouse.dev/cluster")); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for _, f := range fronts { // held until the site has joined
		all.Go(func() {
			if status, body := f.ask(t, "chat"); status != 200 {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	w := newSite(t, "west", pool, siteConfig{accept: everything}, fronts[0].at, fronts[1].at)
	all.Wait()
	if w.count() != 1 {
		t.Errorf("%d functions, want 1", w.count())
	}
	w.unload("default/chat")
	for w.count() > 0 {
		if got := <-w.changes; got != "apply default/chat" && got != "remove default/chat" {
			t.Error(got)
		}
	}
}

// TestCreatedByAnother: of front doors that share a function, like the activators of one cluster, one has the agent.
// A request at the other one has the function created there too. They own it together, and it is removed after
// disuse.
func TestCreatedByAnother(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	both := func(of string) door.Declaration {
		return door.Declaration{Name: of, TokenHashes: []string{door.HashToken(of)}, Functions: []string{"*/*"}, Front: true}
	}
	a := newFrontNamed(t, "fronts/a", server, declared("west", "west", "default/*"), both("b"))
	b := newFrontNamed(t, "fronts/b", server, declared("west", "west", "default/*"), both("a"))
	a.peer(t, b, "a", pool)
	b.peer(t, a, "b", pool)
	for _, f := range []*front{a, b} {
		if err := f.Place(placed(door.LabelCluster + " = west")); err != nil {
			t.Fatal(err)
		}
	}
	w := newSite(t, "west", pool, siteConfig{accept: everything}, a.at)
	for _, first := range []*front{b, a} {
		if status, body := first.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
			t.Fatalf("%d %s", status, body)
		}
		if got := <-w.changes; got != "apply default/chat" {
			t.Error(got)
		}
		w.mu.Lock()
		owners := slices.Clone(w.has["default/chat"].owners)
		w.mu.Unlock()
		if len(owners) != 1 || !strings.HasPrefix(owners[0], "fronts@") {
			t.Errorf("it is there for %v, want both together", owners)
		}
		for _, f := range []*front{a, b} {
			if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
				t.Errorf("%d %s", status, body)
			}
		}
		w.unload("default/chat")
		if got := <-w.changes; got != "remove default/chat" {
			t.Error(got)
		}
	}
}

// TestOwnerOfAnother: a front door that claims another's owner name is not accepted if its certificate has other
// names: it can't remove or change the other's functions.
func TestOwnerOfAnother(t *testing.T) {
	t.Parallel()
	var owners []string
	for _, host := range []string{"a.example", "b.example"} {
		server, c := authorityOf(t, host)
		pool := x509.NewCertPool()
		pool.AddCert(c)
		f := newFrontNamed(t, "fronts/"+host, server, declared("west", "west", "default/*"))
		if err := f.Place(placed(door.LabelCluster + " = west")); err != nil {
			t.Fatal(err)
		}
		w := newSite(t, "west", pool, siteConfig{accept: everything}, f.at)
		if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
			t.Fatalf("%d %s", status, body)
		}
		w.mu.Lock()
		owners = append(owners, w.has["default/chat"].owners...)
		w.mu.Unlock()
	}
	if len(owners) != 2 || owners[0] == owners[1] || !strings.HasPrefix(owners[0], "fronts@") || !strings.HasPrefix(owners[1], "fronts@") {
		t.Errorf("what two of one name have created is there for %v, want one for each", owners)
	}
}

// TestTooSmall: a function is not created where its memory does not fit.
func TestTooSmall(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "west", "default/*"), declared("east", "east", "default/*"))
	small, large := everything, everything
	small.Memory = &api.Memory{Host: api.GiB, Devices: 1, PerDevice: 24 * api.GiB}
	large.Memory = &api.Memory{Host: 64 * api.GiB, Devices: 8, PerDevice: 80 * api.GiB}
	newSite(t, "east", pool, siteConfig{accept: small}, f.at)
	newSite(t, "west", pool, siteConfig{accept: large}, f.at)
	for name, needs := range map[string]api.Memory{"host": {Host: 2 * api.GiB}, "devices": {Devices: 2}, "each": {Devices: 1, PerDevice: 40 * api.GiB}, "none": {Host: api.GiB * 65}} {
		spec := placed("rouse.dev/cluster")
		spec.Name, spec.Model, spec.Memory = api.FunctionName("default/"+name), api.ModelName(name), needs
		if err := f.Place(spec); err != nil {
			t.Fatal(err)
		}
		f.joined(t, spec.Name, "west", "east")
		status, body := f.ask(t, name)
		if want := `{"from":"west"}`; name != "none" && (status != 200 || body != want) || name == "none" && status != 503 {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// TestAcceptsAtMost: an agent creates no more functions than configured.
func TestAcceptsAtMost(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "west", "default/*"))
	w := newSite(t, "west", pool, siteConfig{accept: agent.Accept{Functions: []string{"default/*"}, Max: 1}}, f.at)
	for n, want := range []int{200, 503} {
		spec := placed("rouse.dev/cluster")
		spec.RemoveAfter = time.Hour
		spec.Name, spec.Model = api.FunctionName(fmt.Sprintf("default/f%d", n)), api.ModelName(fmt.Sprintf("f%d", n))
		if err := f.Place(spec); err != nil {
			t.Fatal(err)
		}
		f.joined(t, spec.Name, "west")
		if status, body := f.ask(t, string(spec.Model)); status != want {
			t.Errorf("%d: %d %s, want %d", n, status, body, want)
		}
	}
	if w.count() != 1 {
		t.Errorf("%d functions, want 1", w.count())
	}
}

// TestBadPlacement: an invalid selector is refused when it is declared.
func TestBadPlacement(t *testing.T) {
	t.Parallel()
	server, _ := authority(t)
	f := newFront(t, server)
	for _, selector := range []string{"a in", "a==b==c", "=,"} {
		if err := f.Place(placed(selector)); err == nil {
			t.Errorf("%q is a selector", selector)
		}
	}
	spec := placed("a")
	spec.Manifest = strings.Repeat("x", protocol.MaxManifest+1)
	if err := f.Place(spec); err == nil {
		t.Error("a manifest that no agent takes")
	}
}
