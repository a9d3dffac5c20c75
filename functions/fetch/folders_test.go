package fetch_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
)

// TestFoldersShareTheLimit: models and functions' folders are evicted in one order, the least recently used first, and never what is held.
func TestFoldersShareTheLimit(t *testing.T) {
	o := newOrigin(t)
	for _, name := range []string{"old", "new"} {
		o.set("/"+name, served{content: random(uint64(len(name)+int(name[0])), 40_000), etag: `"v1"`})
	}
	cfg := config(t, o.Server)
	cfg.Limit = 200_000
	c := open(t, cfg)
	put := func(kind, name string, size int, used time.Time) (release func()) {
		t.Helper()
		held, err := c.HoldFolder(t.Context(), kind, name, true)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(held.Path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the folder %s is %v (%v), want the mode 0700", held.Path, info.Mode(), err)
		}
		if err := os.MkdirAll(filepath.Join(held.Path, "deep", "er"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(held.Path, "deep", "er", "file"), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(held.Path, used, used); err != nil {
			t.Fatal(err)
		}
		return held.Release
	}
	past := time.Now().Add(-time.Hour)
	held := put(fetch.Snapshots, "held", 50_000, past.Add(-time.Hour))
	if _, err := c.HoldFolder(t.Context(), fetch.Snapshots, "held", true); err == nil {
		t.Error("two hold one snapshot")
	}
	put(fetch.Compiled, "first", 40_000, past)()
	fetched(t, c, o.URL+"/old").Release()
	put(fetch.Snapshots, "last", 40_000, time.Now().Add(time.Hour))()

	left := func(want ...string) {
		t.Helper()
		list, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list {
			got = append(got, filepath.Base(e.Ref))
			if want := e.Ref == "snapshots/held"; e.InUse != want {
				t.Errorf("%s is in use: %t, want %t", e.Ref, e.InUse, want)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the cache has %q, want %q", got, want)
		}
	}
	left("first", "held", "last", "old")
	fetched(t, c, o.URL+"/new").Release() // 170,000 are there
	left("held", "last", "new", "old")
	if err := c.MakeRoom(t.Context(), 60_000); err != nil {
		t.Error(err)
	}
	left("held", "last", "new")
	if err := c.MakeRoom(t.Context(), 140_000); err != nil {
		t.Error(err)
	}
	left("held")
	if err := c.MakeRoom(t.Context(), 160_000); err == nil {
		t.Error("there is room beside what is held")
	}
	if err := c.MakeRoom(t.Context(), api.MiB); err == nil {
		t.Error("there is room for more than the limit")
	}
	if _, err := c.Remove(t.Context(), "snapshots/held"); err == nil {
		t.Error("what is held is removed")
	}
	held()
	if freed, err := c.Prune(t.Context(), 0); err != nil || freed != 50_000 {
		t.Errorf("a prune frees %d: %v", freed, err)
	}
	left()
	one, err := c.HoldFolder(t.Context(), fetch.Compiled, "of-two", false)
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.HoldFolder(t.Context(), fetch.Compiled, "of-two", false)
	if err != nil {
		t.Fatal(err)
	}
	one.Release()
	if _, err := c.Remove(t.Context(), "compiled/of-two"); err == nil {
		t.Error("a folder is removed while its second holder uses it")
	}
	two.Release()
	if _, err := c.Remove(t.Context(), "compiled/of-two"); err != nil {
		t.Error(err)
	}
	left()
}
