package agent

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestEagerly: a front door that is unreachable when it is dialled is reached soon after it is back, even if the
// first packet was lost.
func TestEagerly(t *testing.T) {
	errNo := errors.New("refused")
	lost := func(ctx context.Context) (net.Conn, error) { // its first packet was lost
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, tt := range map[string]struct {
		back  time.Duration // when it is back; 0: it refuses
		after time.Duration // when the attempts end
		err   error
	}{
		"at once":  {back: time.Nanosecond, after: time.Nanosecond},
		"soon":     {back: time.Second, after: 1200 * time.Millisecond},
		"too late": {back: time.Minute, after: dialTimeout, err: context.DeadlineExceeded},
		"refuses":  {err: errNo},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, open := time.Now(), 0
				conn, err := eagerly(t.Context(), func(ctx context.Context) (net.Conn, error) {
					switch {
					case tt.back == 0:
						return nil, errNo
					case time.Since(begun) < tt.back-time.Nanosecond:
						return lost(ctx)
					}
					time.Sleep(time.Nanosecond)
					open++
					a, _ := net.Pipe()
					return a, nil
				})
				if !errors.Is(err, tt.err) || (conn == nil) != (tt.err != nil) {
					t.Errorf("%v, %v; want %v", conn, err, tt.err)
				}
				if took := time.Since(begun); took < tt.after || took > tt.after+tryEvery {
					t.Errorf("it took %v, want %v", took, tt.after)
				}
				if open > 1 {
					t.Errorf("%d connections", open)
				}
			})
		})
	}
}
