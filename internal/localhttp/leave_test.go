package localhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestUsageOfARequestThatWasLeft: a server that is asked for the usage may still answer once the request's context has
// ended. Without that, and behind a wake, the connection is closed.
func TestUsageOfARequestThatWasLeft(t *testing.T) {
	began := make(chan struct{}, 1)
	at := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(api.InTurn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
		w.Header().Set(control.HeaderUsage, "3 0 5")
		w.WriteHeader(api.StatusClientClosed)
	})))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	for name, test := range map[string]struct {
		header []string
		want   string
	}{
		"asked":         {[]string{control.HeaderUsage}, "3 0 5"},
		"not asked":     {nil, ""},
		"behind a wake": {[]string{control.HeaderUsage, control.HeaderWait}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			transport := New(1, time.Minute)
			ctx, leave := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, api.Endpoint("unix:"+at).URL("/"), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range test.header {
				r.Header.Set(h, "true")
			}
			go func() {
				<-began
				leave()
			}()
			resp, err := transport.RoundTrip(r)
			got := ""
			if err == nil {
				got = resp.Header.Get(control.HeaderUsage)
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if got != test.want {
				t.Errorf("it reports %q, want %q; %v", got, test.want, err)
			}
			if transport.count != 0 {
				t.Error("the connection is kept")
			}
		})
	}
}

// halfClosed is a connection whose write goes on after CloseWrite, like one to a Unix socket.
type halfClosed struct{ net.Conn }

func (halfClosed) CloseWrite() error { return nil }

// TestLeavingAServerThatReadsNothing: a request that is still being written ends, too.
func TestLeavingAServerThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		left := errors.New("the client left")
		ctx, leave := context.WithCancelCause(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://a/", strings.NewReader("one"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(control.HeaderUsage, "true")
		out, err := whole(r)
		if err != nil {
			t.Fatal(err)
		}
		defer out.release()
		time.AfterFunc(time.Minute, func() { leave(left) })
		if _, _, err = newConn(nil, "a", halfClosed{near}).exchange(r, out, nil); !errors.Is(err, left) {
			t.Errorf("%v, want %v", err, left)
		}
	})
}
