package inbound

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLargeBuffersAreCollected: a collection starts after every 256 MiB of large buffers, and a while after the first.
func TestLargeBuffersAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		uncollected.Store(0)
		collecting.Store(false)
		for range 256 {
			grab(largeBuffer - 1)
		}
		if uncollected.Load() != 0 || collecting.Load() {
			t.Errorf("small buffers count as %d bytes", uncollected.Load())
		}
		for range 3 {
			grab(64<<20 + 1)
		}
		if n := uncollected.Load(); n != 3*(64<<20+1) || !collecting.Load() {
			t.Errorf("%d bytes are counted, a collection is due: %v", n, collecting.Load())
		}
		grab(64<<20 + 1)
		if n := uncollected.Load(); n != 0 {
			t.Errorf("%d bytes are counted: want none after a collection", n)
		}
		grab(largeBuffer)
		if !collecting.Load() {
			t.Error("no collection is due")
		}
		time.Sleep(collectAfter)
		synctest.Wait()
		if uncollected.Load() != 0 || collecting.Load() {
			t.Errorf("%d bytes are counted after a while", uncollected.Load())
		}
	})
}
