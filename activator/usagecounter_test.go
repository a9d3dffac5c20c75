package activator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

// counter returns a counter, and a function that takes its reports.
func counter() (c *usageCounter, take func() []api.Usage) {
	var list []api.Usage
	c = newUsageCounter("one", api.EmitterFunc(func(e api.Event) {
		var u api.Usage
		if err := json.Unmarshal(e.Data, &u); err != nil || e.Type != api.EventUsage || u.Check() != nil {
			panic(fmt.Sprint(e.Type, err, u.Check()))
		}
		slices.SortFunc(u.Uses, func(a, b api.Use) int { return strings.Compare(a.Tenant, b.Tenant) })
		list = append(list, u)
	}))
	return c, func() []api.Usage { l := list; list = nil; return l }
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestTells: changed functions are reported, and all of them each minute; unused ones are forgotten.
func TestTells(t *testing.T) {
	c, take := counter()
	c.Tell(start)
	c.Add(start, "default/m", api.Use{Tenant: "a", Key: "k", Requests: 1, Input: 10, Cached: 8, Output: 5, GPUSeconds: 20})
	c.Add(start, "default/m", api.Use{Tenant: "a", Key: "k", Requests: 1, Input: 10, Cached: 8, Output: 5, GPUSeconds: 20})
	c.Add(start, "default/m", api.Use{Tenant: "b", Requests: 1, Input: 1, Output: 1, GPUSeconds: 3})
	c.Tell(start.Add(usageEvery))
	want := []api.Usage{{Function: "default/m", Activator: "one", Uses: []api.Use{
		{Begun: start, Tenant: "a", Key: "k", Requests: 2, Input: 20, Cached: 16, Output: 10, GPUSeconds: 40}, {Begun: start, Tenant: "b", Requests: 1, Input: 1, Output: 1, GPUSeconds: 3}}}}
	if diff := cmp.Diff(want, take()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	c.Tell(start.Add(2 * usageEvery))
	if got := take(); len(got) != 0 {
		t.Errorf("told of what has not changed: %v", got)
	}
	c.Tell(start.Add(usageAgain))
	if diff := cmp.Diff(want, take()); diff != "" {
		t.Errorf("the repetition, -want +got:\n%s", diff)
	}
	c.Tell(start.Add(usageUnused))
	take()
	c.Tell(start.Add(usageUnused + usageAgain))
	if got := take(); len(got) != 0 {
		t.Errorf("not forgotten: %v", got)
	}
}

// TestBounds: any number of tenants and instances fits into one event.
func TestBounds(t *testing.T) {
	c, take := counter()
	for k := range 3000 {
		c.Add(start.Add(time.Duration(k)), "default/m", api.Use{Tenant: fmt.Sprint("tenant-", k), Key: fmt.Sprint("key-", k), Requests: 1, Input: 1, Output: 1, GPUSeconds: 1})
	}
	c.Tell(start.Add(usageEvery))
	got := take()
	if len(got) != 1 || len(got[0].Uses) == 0 || len(got[0].Uses) > api.MostUses {
		t.Fatalf("got %d events", len(got))
	}
	all := int64(0)
	for _, u := range got[0].Uses {
		all += u.Requests
	}
	if all != 3000 {
		t.Errorf("%d requests are told, want 3000", all)
	}
}
