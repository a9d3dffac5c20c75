package functions_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestConnectionsToTheRuntime: they carry further requests to servers that are known, to a command that has shown that it answers side by side, and
// to whatever the manifest says; a server that answers one connection after the other goes on answering everybody.
func TestConnectionsToTheRuntime(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		kind   string
		says   *bool
		single bool // a server that serves one connection at a time
		reused bool
	}{
		"a known server":            {api.RuntimeLlamaCpp, nil, false, true},
		"the manifest says no":      {api.RuntimeLlamaCpp, &no, false, false},
		"a command":                 {api.RuntimeCommand, nil, false, true},
		"a command with one thread": {api.RuntimeCommand, nil, true, false},
		"the manifest says so":      {api.RuntimeCommand, &yes, false, true},
		"no model server":           {api.RuntimeHTTP, nil, false, true},
		"nor one connection":        {api.RuntimeHTTP, &no, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"data":[{"id":"fake"}],"choices":[{"text":"t0","message":{"content":"t0 t1 t2"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":3}}`)
			}))
			server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					connections.Add(1)
				}
			}
			if c.single {
				server.Listener = oneByOne{server.Listener, make(chan bool, 1)}
			}
			server.Start()
			defer server.Close()
			i := newInstance(t)
			cfg := i.config()
			cfg.Function.Runtime = api.Runtime{Kind: c.kind, Endpoint: api.Endpoint(server.URL), Model: "fake", ReuseConnections: c.says}
			cfg.ProbeInterval = -1
			i.run(cfg)
			i.until(api.Awake)
			if c.reused { // a command is tried in the background
				for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
					before := connections.Load()
					i.wantAnswer()
					if i.wantAnswer(); connections.Load() == before {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("each request has a connection of its own")
					}
				}
			}
			before := connections.Load()
			const requests = 10
			for range requests {
				i.wantAnswer()
			}
			if n := connections.Load() - before; c.reused && n > 1 || !c.reused && n < requests {
				t.Errorf("%d requests took %d connections; reused: want %t", requests, n, c.reused)
			}
		})
	}
}

// oneByOne accepts the next connection when the last one has ended.
type oneByOne struct {
	net.Listener
	thread chan bool // holds who is served; one place
}

func (l oneByOne) Accept() (net.Conn, error) {
	l.thread <- true
	c, err := l.Listener.Accept()
	free := sync.OnceFunc(func() { <-l.thread })
	if err != nil {
		free()
	}
	return &freeing{c, free}, err
}

type freeing struct {
	net.Conn
	free func()
}

func (c *freeing) Close() error {
	defer c.free()
	return c.Conn.Close()
}
