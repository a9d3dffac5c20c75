//go:build !race

package jsonfield_test

import (
	"testing"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Little is allocated where nothing is changed, however the body is nested. Under the race
// detector a sync.Pool forgets at random what it was given, and more is.
func TestFewAllocations(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"\u0061":{"b":[]}}`)
	for name, f := range map[string]func(){
		"find":   func() { jsonfield.Find(body, "a") },
		"set":    func() { jsonfield.Set(body, "model", []byte(`"m"`)) },
		"rename": func() { renameFold(body, "b", "c") },
		"delete": func() { deleteFold(body, "keep_alive") },
	} {
		if n := testing.AllocsPerRun(100, f); n > 3 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
