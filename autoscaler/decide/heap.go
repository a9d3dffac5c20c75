package decide

import (
	"container/heap"
	"time"
)

// lookHeap holds functions by the time at which they are to be looked at.
type lookHeap struct{ fs byLook }

// first is the function whose time comes first, nil for none.
func (h *lookHeap) first() *fn {
	if len(h.fs) == 0 {
		return nil
	}
	return h.fs[0]
}

// set moves f to t; zero takes it out.
func (h *lookHeap) set(f *fn, t time.Time) {
	switch {
	case f.slot < 0 && t.IsZero():
	case f.slot < 0:
		f.look = t
		heap.Push(&h.fs, f)
	case t.IsZero():
		heap.Remove(&h.fs, f.slot)
	case !t.Equal(f.look):
		f.look = t
		heap.Fix(&h.fs, f.slot)
	}
}

type byLook []*fn

func (h byLook) Len() int           { return len(h) }
func (h byLook) Less(a, b int) bool { return h[a].look.Before(h[b].look) }
func (h byLook) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].slot, h[b].slot = a, b
}

func (h *byLook) Push(x any) {
	f := x.(*fn)
	f.slot = len(*h)
	*h = append(*h, f)
}

func (h *byLook) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	f.slot, f.look = -1, time.Time{}
	return f
}
