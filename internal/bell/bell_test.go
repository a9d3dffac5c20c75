package bell

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestBell checks that pending rings are merged, and that none is lost.
func TestBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, n := New(), 0
		for range 3 {
			b.Ring()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Each(ctx, func() {
				if n++; n == 1 {
					b.Ring() // while the first is being handled
				}
			})
		}()
		synctest.Wait()
		if n != 2 {
			t.Errorf("it was answered %d times, want twice", n)
		}
		cancel()
		<-done
	})
}
