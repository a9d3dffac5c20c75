//go:build !race

package jsonfield_test

import (
	"testing"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// TestFewAllocations checks that an unchanged body causes few allocations, at any nesting. Under the race detector
// there are more, as a sync.Pool drops items at random.
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
