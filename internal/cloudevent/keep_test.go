package cloudevent_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// late is a receiver that starts after some time.
type late struct {
	from time.Time
	got  []string
}

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	if time.Now().Before(l.from) {
		return nil, errors.New("connection refused")
	}
	l.got = append(l.got, r.Header.Get("Ce-Id"))
	return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody, Request: r}, nil
}

// TestLateReceiver checks that with Keep a receiver that starts late gets all events in order.
func TestLateReceiver(t *testing.T) {
	for _, keep := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			receiver := &late{from: time.Now().Add(time.Minute)}
			s, err := cloudevent.NewSender(cloudevent.SenderConfig{URL: "http://late.example", Transport: receiver, Keep: keep})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			var want []string
			for i := range 3 {
				e := demand(i)
				want = append(want, e.ID)
				s.Emit(e)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if slices.Equal(receiver.got, want) != keep {
				t.Errorf("keep %t: got %v of %v", keep, receiver.got, want)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
