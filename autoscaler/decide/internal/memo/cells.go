package memo

import "hash/maphash"

// Cells are the fingerprints of all cells.
type Cells struct {
	prints []uint64
	blocks []uint64 // sums of so many fingerprints each, so that a comparison of all looks at few
}

const blockSize = 32

// NewCells makes n empty cells.
func NewCells(n int) Cells {
	return Cells{prints: make([]uint64, n), blocks: make([]uint64, (n+blockSize-1)/blockSize)}
}

// seed is that of all hashes; they are good for this process only.
var seed = maphash.MakeSeed()

// Hash hashes some content. It is the same for the same value.
func Hash[T comparable](content T) uint64 { return maphash.Comparable(seed, content) }

// Add puts content into a cell.
func (c *Cells) Add(cell int32, hash uint64) {
	c.prints[cell] += hash
	c.blocks[cell/blockSize] += hash
}

// Remove takes content out of a cell.
func (c *Cells) Remove(cell int32, hash uint64) { c.Add(cell, -hash) }

// copyTo makes d the same as c.
func (c *Cells) copyTo(d *Cells) {
	d.prints, d.blocks = append(d.prints[:0], c.prints...), append(d.blocks[:0], c.blocks...)
}

// update makes d the same as c, and adds to changed the cells that were not.
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

// A Watch says which cells are dirty: those that have changed since they were last looked at.
type Watch struct {
	seen    Cells // 0: dirty
	changed []int32
}

// NewWatch is a watch over n cells, all of which are dirty.
func NewWatch(n int) Watch { return Watch{seen: NewCells(n)} }

// Dirty lists the dirty cells, until it is called again. They are clean from then on, as they are now.
func (w *Watch) Dirty(c *Cells) []int32 {
	w.changed = c.update(&w.seen, w.changed[:0])
	return w.changed
}

// Mark makes a cell dirty.
func (w *Watch) Mark(cell int32) { w.seen.Remove(cell, w.seen.prints[cell]) }

// MarkChanged makes dirty what has changed since [Watch.Dirty], even where it changes back.
func (w *Watch) MarkChanged(c *Cells) {
	for _, k := range w.Dirty(c) {
		w.Mark(k)
	}
}
