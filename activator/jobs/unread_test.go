package jobs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
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

// stuck is the connection of a client that reads nothing: what has no deadline fits into buffers.
type stuck struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (s *stuck) SetWriteDeadline(t time.Time) error {
	s.deadline = t
	return nil
}

func (s *stuck) Write(p []byte) (int, error) {
	if s.deadline.IsZero() {
		return s.ResponseRecorder.Write(p)
	}
	time.Sleep(time.Until(s.deadline))
	return 0, os.ErrDeadlineExceeded
}

// TestUnreadFileEnds: a file that its client leaves unread does not hold the connection for ever.
func TestUnreadFileEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		id := b.file("a", strings.Repeat("x", 100<<10))
		r := httptest.NewRequest(http.MethodGet, "/v1/files/"+id+"/content", nil)
		r.Header.Set("X-Tenant", "a")
		w, began := &stuck{ResponseRecorder: httptest.NewRecorder()}, time.Now()
		b.handler.ServeHTTP(w, r)
		if n, took := w.Body.Len(), time.Since(began); n != 32<<10 || took != writeTimeout || !w.deadline.IsZero() {
			t.Errorf("%d bytes in %s, and then the deadline %v: want the first part, a minute, and none", n, took, w.deadline)
		}
	})
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
