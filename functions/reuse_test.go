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
	"github.com/rouse-dev/rouse/functions"
)

// serving runs an instance before a server, and counts the connections to the server.
func serving(t *testing.T, rt api.Runtime, wrap func(net.Listener) net.Listener) (*instance, *atomic.Int64) {
	t.Helper()
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
	server.Listener = wrap(server.Listener)
	server.Start()
	t.Cleanup(server.Close)
	i := newInstance(t)
	cfg := i.config()
	rt.Endpoint, rt.Model, cfg.ProbeInterval = api.Endpoint(server.URL), "fake", -1
	cfg.Function.Runtime = rt
	i.run(cfg)
	i.until(api.Awake)
	return i, &connections
}

// TestConnectionsToTheRuntime: connections carry further requests to known servers, to a command that answers on two at once, and as the
// manifest says.
func TestConnectionsToTheRuntime(t *testing.T) {
	limit := *functions.TrySecond
	*functions.TrySecond = time.Minute // on a busy machine a server may look like one with a single thread
	defer func() { *functions.TrySecond = limit }()
	yes, no := true, false
	for name, c := range map[string]struct {
		kind   string
		says   *bool
		reused bool
	}{
		"a known server":       {api.RuntimeLlamaCpp, nil, true},
		"the manifest says no": {api.RuntimeLlamaCpp, &no, false},
		"a command":            {api.RuntimeCommand, nil, true},
		"the manifest says so": {api.RuntimeCommand, &yes, true},
		"no model server":      {api.RuntimeHTTP, nil, true},
		"nor one connection":   {api.RuntimeHTTP, &no, false},
	} {
		t.Run(name, func(t *testing.T) {
			i, connections := serving(t, api.Runtime{Kind: c.kind, ReuseConnections: c.says}, func(l net.Listener) net.Listener { return l })
			took := func() int64 {
				before := connections.Load()
				for range 10 {
					i.wantAnswer()
				}
				return connections.Load() - before
			}
			n := took()
			for deadline := time.Now().Add(patience); c.reused && n == 10 && time.Now().Before(deadline); n = took() { // a command is tried in the background
			}
			if (n < 10) != c.reused {
				t.Errorf("10 requests took %d connections; reused: want %t", n, c.reused)
			}
		})
	}
}

// patience is how long a test waits for events that take a moment on an idle machine.
const patience = 30 * time.Second

// TestOneThread: a server that handles one connection at a time answers everybody.
func TestOneThread(t *testing.T) {
	i, connections := serving(t, api.Runtime{Kind: api.RuntimeCommand}, func(l net.Listener) net.Listener { return oneByOne{l, make(chan bool, 1)} })
	before := connections.Load()
	for range 30 {
		i.wantAnswer()
	}
	if n := connections.Load() - before; n < 30 {
		t.Errorf("30 requests took %d connections", n)
	}
}

// oneByOne accepts the next connection when the last one has ended.
type oneByOne struct {
	net.Listener
	thread chan bool // holds the served connection; room for one
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
