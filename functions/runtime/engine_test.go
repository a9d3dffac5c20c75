package runtime_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// TestEngineTiles: the folder of repacked weights precedes the function's own options, which win.
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

// TestEngineKeeps: the size that the engine reports as kept in a sleep is known until the next one; without a report it is 0.
func TestEngineKeeps(t *testing.T) {
	r, err := runtime.New(runtime.Config{Spec: api.Runtime{Kind: api.RuntimeEngine, Model: "pico"}, Dir: t.TempDir(), Engine: "rouse"})
	if err != nil {
		t.Fatal(err)
	}
	keeps, can := r.(runtime.Keeper)
	mover, moves := r.(runtime.Mover)
	if !can || !moves {
		t.Fatalf("%T keeps: %v, moves: %v", r, can, moves)
	}
	var status int
	var answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	for _, tc := range []struct {
		status int
		answer string
		want   api.Tokens
	}{
		{200, `{"is_sleeping":true,"level":1,"kept_tokens":640}`, 640}, {200, `{"is_sleeping":true,"level":2,"kept_tokens":0}`, 0},
		{200, `{"kept_tokens":64}`, 64}, {200, `{"kept_tokens":-1}`, 0}, {200, `{"kept_tokens":64}`, 64}, {200, `{"kept_tokens":"64"}`, 0}, {200, `no JSON`, 0},
		{200, `{"kept_tokens":64}`, 64}, {500, `{"kept_tokens":64}`, 0},
	} {
		status, answer = tc.status, tc.answer
		for name, sleep := range map[string]error{"sleep": r.Sleep(t.Context(), api.Endpoint(server.URL), 1), "move": mover.Move(t.Context(), api.Endpoint(server.URL), 1)} {
			if (sleep != nil) != (tc.status != 200) || keeps.Kept() != tc.want {
				t.Errorf("%s, answered with %d %s: %v, %d tokens are kept; want %d", name, tc.status, tc.answer, sleep, keeps.Kept(), tc.want)
			}
		}
	}
}
