package jobs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/internal/relay"
)

// unread is the connection of a client that reads nothing.
type unread struct {
	*httptest.ResponseRecorder
	late chan struct{}
}

func (u *unread) Write([]byte) (int, error) {
	<-u.late
	return 0, os.ErrDeadlineExceeded
}

func (u *unread) SetWriteDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		close(u.late)
	}
	return nil
}

// TestUnreadStoredStreamEnds: a stuck write of a stored response is noticed, and can be ended.
func TestUnreadStoredStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unread{httptest.NewRecorder(), make(chan struct{})}
		w := &responseWriter{w: u, k: &keeper{maxAnswer: 1 << 20}, turn: &turn{}}
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		d := relay.WriteDeadline{}
		wrote := make(chan error)
		go func() {
			d.Move(out, 1)
			_, err := w.Write([]byte("data: {\"type\":\"response.output_text.delta\"}\n\n"))
			d.Done()
			wrote <- err
		}()
		if time.Sleep(relay.CutAfter); !d.Stuck() {
			t.Fatal("the write is not stuck")
		}
		d.Cut(out, func() {})
		if err := <-wrote; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
