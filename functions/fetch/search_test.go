package fetch_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// TestSearch finds a name in Ollama's library and in the hub's names, where only models with GGUF files count.
func TestSearch(t *testing.T) {
	o, parts := newLibrary(t)
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	asked := ""
	status := http.StatusOK
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/models" {
			return false
		}
		asked = r.URL.Query().Get("search") + " " + r.URL.Query().Get("filter") + " " + r.Header.Get("Authorization")
		siblings := func(names ...string) (list []map[string]string) {
			for _, n := range names {
				list = append(list, map[string]string{"rfilename": n})
			}
			return list
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode([]map[string]any{
			{"id": "org/Tiny-GGUF", "downloads": 7, "gated": "auto", "siblings": siblings("README.md", "tiny-Q8_0.gguf", "tiny-Q4_K_M.gguf")},
			{"id": "org/none", "gated": false, "siblings": siblings("config.json")},
			{"id": "org/one", "gated": false, "siblings": siblings("model.gguf")},
		})
		return true
	})
	cfg := config(t, o.Server)
	cfg.Ollama.Endpoint, cfg.Hub.Endpoint, cfg.Hub.Token, cfg.Attempts = o.URL, o.URL, "secret", 1
	got, err := fetch.Search(t.Context(), cfg, " Tiny ")
	if err != nil {
		t.Fatal(err)
	}
	want := []fetch.Found{
		{Model: "ollama://tiny:latest"},
		{Model: "hf.co/org/Tiny-GGUF", Downloads: 7, Gated: true, Quants: []string{"Q4_K_M", "Q8_0"}},
		{Model: "hf.co/org/one", Quants: []string{}},
	}
	want[0].Size = got[0].Size
	if diff := cmp.Diff(want, got); diff != "" || int(got[0].Size) != size {
		t.Errorf("found %d bytes, want %d; (-want +got):\n%s", got[0].Size, size, diff)
	}
	if asked != "Tiny gguf Bearer secret" {
		t.Errorf("the hub was asked for %q", asked)
	}
	if got, err := fetch.Search(t.Context(), cfg, "other.example/a/b"); err != nil || len(got) != 2 { // no other registry is asked
		t.Errorf("a name with a host: %v, %v", got, err)
	}
	status = http.StatusInternalServerError
	if got, err := fetch.Search(t.Context(), cfg, "tiny"); err != nil || len(got) != 1 {
		t.Errorf("with a hub that fails: %v, %v", got, err)
	}
	if _, err := fetch.Search(t.Context(), cfg, "no such"); err == nil || !strings.Contains(err.Error(), "500") || strings.Contains(err.Error(), "secret") {
		t.Errorf("with nothing found, and a hub that fails: %v", err)
	}
	cfg.Offline = true
	if _, err := fetch.Search(t.Context(), cfg, "tiny"); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Errorf("offline: %v", err)
	}
}
