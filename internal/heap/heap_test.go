package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type thing struct{ key, slot int }

func (t *thing) Before(other *thing) bool { return t.key < other.key }
func (t *thing) Slot() *int               { return &t.slot }

// TestAgainstASortedSlice applies random operations and compares the heap with a sorted slice.
func TestAgainstASortedSlice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]thing, 50)
	var h Of[*thing]
	in := map[*thing]bool{}
	for range 20_000 {
		x := &all[r.IntN(len(all))]
		if r.IntN(3) == 0 {
			h.Remove(x)
			delete(in, x)
		} else {
			x.key = r.IntN(1000)
			h.Put(x)
			in[x] = true
		}
		if h.Len() != len(in) {
			t.Fatalf("got %d items, want %d", h.Len(), len(in))
		}
		var keys []int
		for x := range in {
			keys = append(keys, x.key)
		}
		if len(keys) == 0 {
			continue
		}
		if got, want := h.First().key, slices.Min(keys); got != want {
			t.Fatalf("got first %d, want %d", got, want)
		}
		if !in[h.Last()] || (x.slot > 0) != in[x] {
			t.Fatalf("got a last of %v, and slot %d of an item that is in the heap: %t", h.Last(), x.slot, in[x])
		}
	}
}
