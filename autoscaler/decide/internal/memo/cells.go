package memo

import "hash/maphash"

// Cells are the fingerprints of all cells.
type Cells []uint64

// seed is that of all hashes; they are good for this process only.
var seed = maphash.MakeSeed()

// Hash hashes some content. It is the same for the same value.
func Hash[T comparable](content T) uint64 { return maphash.Comparable(seed, content) }

// Add puts content into a cell.
func (c Cells) Add(cell int32, hash uint64) { c[cell] += hash }

// Remove takes content out of a cell.
func (c Cells) Remove(cell int32, hash uint64) { c[cell] -= hash }

// A Watch says which cells are dirty: those that have changed since somebody looked at them.
type Watch struct{ seen []uint64 }

// NewWatch is a watch over n cells, all of which are dirty.
func NewWatch(n int) Watch { return Watch{seen: make([]uint64, n)} }

// Dirty lists the dirty cells. They are clean from then on, as they are now.
func (w *Watch) Dirty(c Cells) (dirty []int32) {
	for k, print := range c {
		if w.seen[k] != print {
			w.seen[k] = print
			dirty = append(dirty, int32(k))
		}
	}
	return dirty
}

// Mark makes a cell dirty.
func (w *Watch) Mark(cell int32) { w.seen[cell] = 0 }

// MarkChanged makes dirty what has changed since [Watch.Dirty], even where it changes back.
func (w *Watch) MarkChanged(c Cells) {
	for k, print := range c {
		if w.seen[k] != print {
			w.seen[k] = 0
		}
	}
}
