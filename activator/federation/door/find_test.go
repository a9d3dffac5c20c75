package door_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/api"
)

// TestFind: front doors come and go by Find's results; this process's own front door is not served.
func TestFind(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"))
	for _, self := range []string{"", "front"} {
		var there atomic.Pointer[[]string]
		there.Store(&[]string{f.at})
		asked := make(chan bool)
		a, err := agent.New(agent.Config{Cluster: "west", Agent: "agent-" + self, Self: self, TLS: &tls.Config{RootCAs: pool}, Token: func() (string, error) { return "w", nil },
			Find: func(ctx context.Context) ([]string, error) {
				select {
				case asked <- true:
				case <-ctx.Done():
				}
				return *there.Load(), ctx.Err()
			}}, agent.Deps{Serve: f.activator.ServeAtOnce, Functions: func() []api.Function { return nil }, Stats: f.activator.Stats, Emitter: api.EmitterFunc(func(api.Event) {}), Logger: logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, time.Second) }()
		<-asked
		until := func(serving bool) {
			t.Helper()
			for a.Serving() != serving {
				select {
				case <-asked:
				case <-time.After(5 * time.Millisecond):
				case <-t.Context().Done():
					t.Fatal("it is not so")
				}
			}
		}
		if self == "" {
			until(true)
			there.Store(&[]string{})
			until(false)
		} else {
			<-asked // it has dialled in between
			if a.Serving() {
				t.Error("it serves itself")
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	list, err := agent.Lookup("localhost", "7443")(t.Context())
	if err != nil || len(list) == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, at := range list {
		host, port, err := net.SplitHostPort(at)
		if ip := net.ParseIP(host); err != nil || port != "7443" || ip == nil || !ip.IsLoopback() {
			t.Errorf("%s, want an address and the port", at)
		}
	}
}
