package inbound

import (
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// TestLargeBuffersAreCollected: a collection starts after every 256 MiB of large buffers.
func TestLargeBuffersAreCollected(t *testing.T) {
	uncollected.Store(0)
	for range 256 {
		Grab(largeBuffer - 1)
	}
	if n := uncollected.Load(); n != 0 {
		t.Errorf("small buffers count as %d bytes", n)
	}
	for range 3 {
		Grab(64<<20 + 1)
	}
	if n := uncollected.Load(); n != 3*(64<<20+1) {
		t.Errorf("%d bytes are counted", n)
	}
	Grab(64<<20 + 1)
	if n := uncollected.Load(); n != 0 {
		t.Errorf("%d bytes are counted: want none after a collection", n)
	}
}

// TestBuffersLeaveTheirPools: a large buffer is in no pool any more a while after it was given back, however long it
// was in use.
func TestBuffersLeaveTheirPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collecting.Store(false)
		const size = 64 << 20
		b := Grab(size)
		time.Sleep(2 * collectAfter)
		GiveBack(b)
		GiveBack(Grab(largeBuffer - 1))
		time.Sleep(collectAfter)
		synctest.Wait()
		if pools[poolOf(size)-smallest].Get() != nil {
			t.Error("it is still in its pool")
		}
		if collecting.Load() {
			t.Error("another collection is due")
		}
		b = Grab(size + 1)
		time.Sleep(2 * collectAfter)
		if collecting.Load() {
			t.Error("a collection is due for what is in use")
		}
		GiveBack(b)
		if !collecting.Load() {
			t.Error("no collection is due for a buffer of no pool")
		}
		time.Sleep(collectAfter)
		synctest.Wait()
	})
}

// TestCollectLater: calls until a collection begin no second one.
func TestCollectLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collecting.Store(false)
		var before, after debug.GCStats
		debug.ReadGCStats(&before)
		CollectLater()
		CollectLater()
		time.Sleep(collectAfter - time.Nanosecond)
		if !collecting.Load() {
			t.Error("no collection is due")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if debug.ReadGCStats(&after); collecting.Load() || after.NumGC < before.NumGC+2 {
			t.Errorf("another collection is due: %t; there were %d", collecting.Load(), after.NumGC-before.NumGC)
		}
	})
}
