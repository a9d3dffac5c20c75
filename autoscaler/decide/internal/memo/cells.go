package memo

import "hash/maphash"

// Cells are the fingerprints of all cells.
type Cells struct {
	prints []uint64
	blocks []uint64 // sums of blockSize fingerprints each, to speed up comparing all
}

const blockSize = 32

// NewCells returns n empty cells.
func NewCells(n int) Cells {
	return Cells{prints: make([]uint64, n), blocks: make([]uint64, (n+blockSize-1)/blockSize)}
}

// seed is the seed of all hashes, which are valid in this process only.
var seed = maphash.MakeSeed()

// Hash returns a hash of content, the same for equal values.
func Hash[T comparable](content T) uint64 { return maphash.Comparable(seed, content) }

// Add adds content to a cell.
func (c *Cells) Add(cell int32, hash uint64) {
	c.prints[cell] += hash
	c.blocks[cell/blockSize] += hash
}

// Remove removes content from a cell.
func (c *Cells) Remove(cell int32, hash uint64) { c.Add(cell, -hash) }

// copyTo makes d equal to c.
func (c *Cells) copyTo(d *Cells) {
	d.prints, d.blocks = append(d.prints[:0], c.prints...), append(d.blocks[:0], c.blocks...)
}

// update makes d equal to c, and appends the cells that differed to changed.
func (c *Cells) update(d *Cells, changed []int32) []int32 {
	for b, sum := range c.blocks {
		if d.blocks[b] == sum {
			continue
		}
		d.blocks[b] = sum
		for k := b * blockSize; k < min(len(c.prints), (b+1)*blockSize); k++ {
			if d.prints[k] != c.prints[k] {
				d.prints[k] = c.prints[k]
				changed = append(changed, int32(k))
			}
		}
	}
	return changed
}

// A Watch tracks dirty cells: those that have changed since they were last looked at.
type Watch struct {
	seen    Cells // 0: dirty
	changed []int32
}

// NewWatch returns a watch over n cells, all of them dirty.
func NewWatch(n int) Watch { return Watch{seen: NewCells(n)} }

// Dirty lists the dirty cells and makes them clean. The slice is valid until the next call.
func (w *Watch) Dirty(c *Cells) []int32 {
	w.changed = c.update(&w.seen, w.changed[:0])
	return w.changed
}

// Mark makes a cell dirty.
func (w *Watch) Mark(cell int32) { w.seen.Remove(cell, w.seen.prints[cell]) }

// MarkChanged makes the cells dirty that have changed since [Watch.Dirty], even if they change back.
func (w *Watch) MarkChanged(c *Cells) {
	for _, k := range w.Dirty(c) {
		w.Mark(k)
	}
}
