package cloudevent_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

func event(n int) api.Event { return api.Event{ID: strconv.Itoa(n)} }

func collect(t *testing.T, l *cloudevent.Log, n int) []string {
	t.Helper()
	var got []string
	if err := l.Follow(t.Context(), n, false, func(e api.Event) error { got = append(got, e.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTheLastEventsAreKept(t *testing.T) {
	received := 0
	l := cloudevent.NewLog(func(api.Event) { received++ })
	for i := range 3 * cloudevent.Kept {
		l.Emit(event(i))
	}
	if want := []string{"2998", "2999"}; !cmp.Equal(collect(t, l, 2), want) {
		t.Errorf("the last two: %v, want %v", collect(t, l, 2), want)
	}
	if n := len(collect(t, l, 1<<30)); n < cloudevent.Kept*9/10 || n > cloudevent.Kept {
		t.Errorf("%d are kept, want %d at most and not many less", n, cloudevent.Kept)
	}
	if got := collect(t, l, -1); got != nil {
		t.Errorf("none was asked for: %v", got)
	}
	if received != 3*cloudevent.Kept {
		t.Errorf("the receiver got %d events, want %d", received, 3*cloudevent.Kept)
	}
}

// TestFollowersNeverBlock checks that a follower that stops reading does not delay the emitter.
func TestFollowersNeverBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := cloudevent.NewLog()
		ctx, cancel := context.WithCancel(t.Context())
		stuck, got := make(chan struct{}), 0
		done := make(chan error, 1)
		go func() {
			done <- l.Follow(ctx, 0, true, func(api.Event) error { <-stuck; got++; return nil })
		}()
		synctest.Wait()
		for i := range 2000 {
			l.Emit(event(i))
		}
		close(stuck)
		synctest.Wait()
		if got == 0 || got >= 2000 {
			t.Errorf("the slow follower got %d of 2000 events, want the first and no more than its queue", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the end of following: %v", err)
		}
	})
}
