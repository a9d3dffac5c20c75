package functions

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestModelsAtOnce fetches a model while adapters are registered and the instance
// ends: nothing is held afterwards.
func TestModelsAtOnce(t *testing.T) {
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	defer files.Close()
	m, err := newModels(Config{
		Function: api.Function{Runtime: api.Runtime{Kind: api.RuntimeVLLM, Model: files.URL + "/model"}}, Models: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := m.adapter(t.Context(), files.URL+"/"+strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := m.prepare(t.Context(), func(float64) {}); err != nil {
		t.Error(err)
	}
	all.Wait()
	m.release()
	if _, err := m.adapter(t.Context(), files.URL+"/late"); err == nil {
		t.Error("an instance that has ended holds a model")
	}
	cache, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	list, err := cache.List(t.Context())
	if err != nil || len(list) != 10 {
		t.Fatalf("the cache has %v, %v, want the model and 9 adapters", list, err)
	}
	for _, e := range list {
		if e.InUse {
			t.Errorf("%s is held after the end", e.Ref)
		}
	}
}
