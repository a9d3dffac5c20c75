package forward

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// account is a [Memory] with a limit in bytes.
type account struct {
	limit, used, peak atomic.Int64
}

func (a *account) Take(_ context.Context, n int64) error {
	if a.used.Add(n) > a.limit.Load() {
		a.used.Add(-n)
		return errors.New("full")
	}
	a.peak.Store(max(a.peak.Load(), a.used.Load()))
	return nil
}

func (a *account) Give(n int64) { a.used.Add(-n) }

func accountOf(limit int64) *account {
	a := &account{}
	a.limit.Store(limit)
	return a
}

// largest is a sink that records the largest write.
type largest struct{ all, most int }

func (l *largest) Write(p []byte) (int, error) {
	l.all, l.most = l.all+len(p), max(l.most, len(p))
	return len(p), nil
}
func (*largest) Flush() error { return nil }

// TestEventsAreCharged: an event is buffered until it is whole, in accounted memory; one that is too large, or for
// which there is no memory, is passed on in pieces.
func TestEventsAreCharged(t *testing.T) {
	const size = 3 << 20
	for _, tc := range []struct {
		name           string
		limit          int64
		maxEvent, most int // the largest piece
		peak           int64
	}{
		{"in pieces of the default", 100 << 20, maxEvent, 1 << 20, 1<<20 + 1<<19},
		{"in pieces of another limit", 100 << 20, 64 << 10, 64 << 10, 64<<10 + 32<<10},
		{"whole, where that is allowed", 100 << 20, 4 << 20, size + len("data: \n\n"), 4<<20 + 2<<20},
		{"there is some memory", 200 << 10, maxEvent, 128 << 10, 192 << 10},
		{"there is none", 0, maxEvent, smallBuffer, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			memory, sink := accountOf(tc.limit), &largest{}
			resp := answerOf(api.StreamCompletion, io.EOF, "data: ", strings.Repeat("x", size), "\n\n", done).resp
			a := newAnswer(t.Context(), resp, Call{Kind: api.StreamCompletion, MaxEvent: api.Bytes(tc.maxEvent), Memory: memory}, headerMemory{})
			if err := a.Copy(sink); err != nil {
				t.Error(err)
			}
			if want := len("data: \n\n") + size + len(done); sink.all != want || sink.most > tc.most || sink.most < tc.most/2 {
				t.Errorf("%d bytes, the largest piece %d; want %d, and pieces of %d", sink.all, sink.most, want, tc.most)
			}
			if got := memory.peak.Load(); got != tc.peak {
				t.Errorf("%d bytes were charged at once, want %d", got, tc.peak)
			}
			a.Close()
			if got := memory.used.Load(); got != 0 {
				t.Errorf("%d bytes are still charged after the end", got)
			}
		})
	}
}

// TestLargeHeadersAreCharged: a large header is charged before it is read.
func TestLargeHeadersAreCharged(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-A", strings.Repeat("a", 100<<10))
		_, _ = io.WriteString(w, "{}")
	})
	transport := localhttp.New(2, time.Minute)
	t.Cleanup(transport.CloseIdleConnections)
	ask := func(memory Memory) (*Answer, error) {
		in := post(`{}`)
		body, err := inbound.New(inbound.Config{}).Read(httptest.NewRecorder(), in, "")
		if err != nil {
			t.Fatal(err)
		}
		defer body.Release()
		return NewClient(transport).Send(t.Context(), Call{In: in, Body: body, Base: base, Memory: memory})
	}
	memory := accountOf(1 << 20)
	a, err := ask(memory)
	if err != nil {
		t.Fatal(err)
	}
	if got := memory.used.Load(); got < 100<<10 {
		t.Errorf("%d bytes are charged, want those of the header", got)
	}
	if a.Close(); memory.used.Load() != 0 {
		t.Errorf("%d bytes are still charged after the end", memory.used.Load())
	}
	var refused *api.Error
	var failed *Failure
	if _, err = ask(accountOf(1000)); !errors.As(err, &refused) || errors.As(err, &failed) || refused.Code != api.CodeHoldFull {
		t.Errorf("without memory: %v, want a refusal that is not sent again", err)
	}
}
