package runtime_test

import (
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// TestEngineTiles: the folder of repacked weights is said before what the function declares, which may say another.
func TestEngineTiles(t *testing.T) {
	r, err := runtime.New(runtime.Config{
		Spec: api.Runtime{Kind: api.RuntimeEngine, Model: "pico", Args: []string{"--tile-dir", "/declared"}},
		Dir:  t.TempDir(), Engine: "rouse", Tiles: "/cache/tiles",
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Launch("pico")
	if err != nil {
		t.Fatal(err)
	}
	ours, declared := slices.Index(l.Args, "/cache/tiles"), slices.Index(l.Args, "/declared")
	if ours < 1 || l.Args[ours-1] != "--tile-dir" || declared < ours {
		t.Errorf("the engine is started with %q", l.Args)
	}
}
