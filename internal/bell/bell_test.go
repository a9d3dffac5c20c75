package bell

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, why := time.Now(), errors.New("told to end")
		if err := Sleep(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("it slept for %s: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		if err := Sleep(ctx, time.Hour); !errors.Is(err, why) || time.Since(began) != time.Hour+time.Minute {
			t.Errorf("it slept for %s: %v", time.Since(began), err)
		}
	})
}
