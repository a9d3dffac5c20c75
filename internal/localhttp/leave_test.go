package localhttp

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
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
