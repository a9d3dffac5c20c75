package fetch_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestSnapshotsShareTheLimit: models and snapshots are evicted in one order, the least recently used first, and never what is held.
func TestSnapshotsShareTheLimit(t *testing.T) {
	o := newOrigin(t)
	for _, name := range []string{"old", "new"} {
		o.set("/"+name, served{content: random(uint64(len(name)+int(name[0])), 40_000), etag: `"v1"`})
	}
	cfg := config(t, o.Server)
	cfg.Limit = 200_000
	c := open(t, cfg)
	image := func(name string, size int, used time.Time) (release func()) {
		t.Helper()
		dir, release, err := c.HoldSnapshot(name)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the folder %s is %v (%v), want the mode 0700", dir, info.Mode(), err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pages.img"), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, used, used); err != nil {
			t.Fatal(err)
		}
		return release
	}
	past := time.Now().Add(-time.Hour)
	held := image("held", 50_000, past.Add(-time.Hour))
	if _, _, err := c.HoldSnapshot("held"); err == nil {
		t.Error("two hold one snapshot")
	}
	image("first", 40_000, past)()
	fetched(t, c, o.URL+"/old").Release()
	image("last", 40_000, time.Now().Add(time.Hour))()

	left := func(want ...string) {
		t.Helper()
		var got []string
		for _, name := range names(t, filepath.Join(c.Dir(), "snapshots")) {
			got = append(got, filepath.Dir(name))
		}
		list, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			got = append(got, filepath.Base(e.Ref))
		}
		if len(got) != len(want) {
			t.Fatalf("the cache has %q, want %q", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("the cache has %q, want %q", got, want)
			}
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
	held()
	if freed, err := c.Prune(t.Context(), 0); err != nil || freed != 50_000 {
		t.Errorf("a prune frees %d: %v", freed, err)
	}
	left()
}
