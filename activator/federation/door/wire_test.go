package door_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api"
)

// wire is a network between agents and a front door, which can be stopped in each direction, and cut.
type wire struct {
	at     string
	refuse atomic.Bool // new connections end at once

	mu       sync.Mutex        // guards the fields below
	up, down *gate             // of later connections
	link     *gate             // for data from agents on connections for requests (all but the first), after the first TLS record; nil: up
	conns    map[net.Conn]bool // true: the front door's end
}

// gate passes bytes, or holds them while it is closed.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while it is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) unshut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gate) pass() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{at: l.Addr().String(), conns: map[net.Conn]bool{}, up: newGate(), down: newGate()}
	go func() {
		for {
			agent, err := l.Accept()
			if err != nil {
				return
			}
			front, err := net.Dial("tcp", to)
			if err == nil && w.refuse.Load() {
				_ = front.Close()
				err = net.ErrClosed
			}
			if err != nil {
				_ = agent.Close()
				continue
			}
			w.mu.Lock()
			w.conns[agent], w.conns[front] = false, true
			if w.link != nil && len(w.conns) >= 4 {
				go w.pumpLink(front, agent, w.link)
			} else {
				go w.pump(front, agent, w.up)
			}
			go w.pump(agent, front, w.down)
			w.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		w.cut()
	})
	return w
}

// pumpLink passes a TLS record directly, and the rest through g.
func (w *wire) pumpLink(front, agent net.Conn, g *gate) {
	header := make([]byte, 5)
	_, err := io.ReadFull(io.TeeReader(agent, front), header)
	if err == nil {
		_, err = io.CopyN(front, agent, int64(binary.BigEndian.Uint16(header[3:])))
	}
	if err != nil {
		_ = front.Close()
		return
	}
	w.pump(front, agent, g)
}

func (w *wire) pump(to, from net.Conn, g *gate) {
	defer to.Close()
	defer from.Close()
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		g.pass()
		if n > 0 {
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// delayLink holds the data of connections for requests until arrive is called. Their agent must not have connected
// yet.
func (w *wire) delayLink() (arrive func()) {
	g := newGate()
	g.shut()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link = g
	return g.unshut
}

// cut ends every connection.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
		delete(w.conns, c)
	}
}

// sever closes the front door's ends of the present connections; their agents notice nothing until mend is called.
// Later connections work.
func (w *wire) sever() (mend func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	up, down := w.up, w.down
	w.up, w.down = newGate(), newGate()
	up.shut()
	down.shut()
	for c, front := range w.conns {
		if front {
			_ = c.Close()
		}
	}
	return func() { up.unshut(); down.unshut() }
}

// TestLinkIsLate: an agent's report arrives before its link. It is applied once requests can go there, and nothing
// else is woken.
func TestLinkIsLate(t *testing.T) {
	t.Parallel()
	m, _ := newMachine(t, api.Asleep, time.Millisecond, declared("west", "w", "default/*"))
	w := newWire(t, m.at)
	arrive := w.delayLink()
	west := newCluster(t, "west", "w", m.pool, chat, w.at)
	west.set(api.Awake)
	time.AfterFunc(100*time.Millisecond, arrive)
	m.has(t, "west", api.Awake)
	if status, body := m.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
		t.Errorf("%d %s, want it from west", status, body)
	}
	if m.woken() != 0 {
		t.Error("it was woken here")
	}
}

// TestLinkCut: requests without a first byte are answered after their cluster's connections were cut.
func TestLinkCut(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"))
	w := newWire(t, f.at)
	west := newCluster(t, "west", "w", pool, chat, w.at)
	var arrived sync.WaitGroup
	arrived.Add(2)
	var first atomic.Int32
	finish := make(chan struct{})
	west.answer = func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the client's leaving goes unnoticed
		if first.Add(1) <= 2 {             // these never answer
			arrived.Done()
			<-r.Context().Done()
			return
		}
		<-finish
		fmt.Fprint(rw, `{"again":true}`)
	}
	f.known(t, chat.Name)
	var all sync.WaitGroup
	for range 8 { // two run, six wait
		all.Go(func() {
			if status, body := f.ask(t, "chat"); status != 200 || body != `{"again":true}` {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	arrived.Wait()
	w.cut()
	close(finish)
	all.Wait()
}

// TestSilence: a network that is silent for two seconds, in one or both directions, loses no request, and is used
// again at once; a running stream continues to its end.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, shut := range map[string]func(*wire) []*gate{
		"both":           func(w *wire) []*gate { return []*gate{w.up, w.down} },
		"to the front":   func(w *wire) []*gate { return []*gate{w.up} },
		"from the front": func(w *wire) []*gate { return []*gate{w.down} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, pool := authority(t)
			f := newFront(t, server, declared("west", "w", "default/chat"))
			w := newWire(t, f.at)
			west := newCluster(t, "west", "w", pool, chat, w.at)
			begun, finish := make(chan struct{}), make(chan struct{})
			west.answer = func(rw http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Long") == "" {
					fmt.Fprint(rw, `{"from":"west"}`)
					return
				}
				rw.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(rw, "data: {\"choices\":[]}\n\n")
				rw.(http.Flusher).Flush()
				close(begun)
				<-finish
				fmt.Fprint(rw, "data: [DONE]\n\n")
			}
			f.known(t, chat.Name)
			west.set(api.Awake)
			long := make(chan string, 1)
			go func() { long <- f.stream(t) }()
			<-begun
			gates := shut(w)
			for _, g := range gates {
				g.shut()
			}
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
						t.Errorf("%d %s", status, body)
					}
				})
			}
			time.Sleep(2 * time.Second) // the network is real, and so is its silence
			for _, g := range gates {
				g.unshut()
			}
			all.Wait()
			close(finish)
			if got, want := <-long, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"; got != want {
				t.Errorf("the stream that had begun: %q, want %q", got, want)
			}
		})
	}
}

// TestSilentForGood: if a network goes silent for good without closing connections, a running stream ends at both
// ends.
func TestSilentForGood(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"))
	w := newWire(t, f.at)
	west := newCluster(t, "west", "w", pool, chat, w.at)
	begun, ended := make(chan struct{}), make(chan struct{})
	west.answer = func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "data: {\"choices\":[]}\n\n")
		rw.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
		close(ended)
	}
	f.known(t, chat.Name)
	west.set(api.Awake)
	stream := make(chan string, 1)
	go func() { stream <- f.stream(t) }()
	<-begun
	w.up.shut()
	w.down.shut()
	if got := <-stream; !strings.Contains(got, `"error"`) {
		t.Errorf("the stream ends with %q, want an error", got)
	}
	<-ended
	w.up.unshut()
	w.down.unshut()
}

// stream requests a stream, and returns it.
func (f *front) stream(t *testing.T) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body := `{"model":"chat","stream":true,"messages":[]}`
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.server.URL+chatPath, io.NopCloser(strings.NewReader(body)))
	r.Header.Set("X-Long", "1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(got)
}

// peer makes a front door an agent of another one, which declares it by that name, with the name as its token.
func (f *front) peer(t *testing.T, of *front, name string, pool *x509.CertPool) {
	t.Helper()
	a, err := agent.New(agent.Config{Fronts: []string{of.at}, Cluster: name, Agent: "front", TLS: &tls.Config{RootCAs: pool}, Token: func() (string, error) { return name, nil }},
		agent.Deps{Serve: f.activator.ServeAtOnce, Functions: f.Offered, Stats: func(name api.FunctionName) (api.Activity, bool) {
			s, ok := f.activator.Stats(name)
			return f.Of(name, s), ok
		}, Emitter: api.EmitterFunc(f.EmitOf), Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	f.watch.Store(a)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, time.Second) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// TestTwoFronts: a function that only agents of another front door have is served in one hop, held and woken like any
// other, and a request never goes back.
func TestTwoFronts(t *testing.T) {
	t.Parallel()
	t.Run("everybody", func(t *testing.T) { twoFronts(t) })
	t.Run("a tenant", func(t *testing.T) { twoFronts(t, "acme") })
}

// twoFronts asks two front doors for a function in a cluster of one of them, which may only see those tenants'
// requests.
func twoFronts(t *testing.T, tenants ...string) {
	t.Helper()
	server, pool := authority(t)
	x := newFront(t, server, door.Declaration{Name: "y", TokenHashes: []string{door.HashToken("y")}, Functions: []string{"*/*"}, Front: true})
	y := newFront(t, server, of(declared("west", "w", "default/chat"), tenants...), door.Declaration{Name: "x", TokenHashes: []string{door.HashToken("x")}, Functions: []string{"*/*"}, Front: true})
	y.peer(t, x, "y", pool)
	x.peer(t, y, "x", pool)
	newCluster(t, "west", "w", pool, chat, y.at)
	x.known(t, chat.Name)
	var all sync.WaitGroup
	for range 20 {
		for _, f := range []*front{x, y} {
			all.Go(func() {
				if status, body := f.askAs(t, strings.Join(tenants, ""), "chat"); status != 200 || body != `{"from":"west"}` {
					t.Errorf("%d %s", status, body)
				}
			})
		}
	}
	all.Wait()
	for _, f := range []*front{x, y} {
		if status, body := f.askAs(t, "other", "chat"); len(tenants) > 0 && (status != 403 || !strings.Contains(body, "not_allowed")) {
			t.Errorf("another tenant: %d %s, want 403", status, body)
		}
	}
	if x.Offered() != nil {
		t.Errorf("a front door offers what another one has: %+v", x.Offered())
	}
}

// TestSameID: requests that share an id, which clients choose, are not taken for attempts of one another.
func TestSameID(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"))
	west := newCluster(t, "west", "w", pool, chat, f.at)
	var both sync.WaitGroup
	both.Add(2)
	west.answer = func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		both.Done()
		both.Wait() // they run at the same time
		fmt.Fprint(rw, `{"from":"west"}`)
	}
	f.known(t, chat.Name)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.server.URL+chatPath, strings.NewReader(`{"model":"chat","messages":[]}`))
			r.Header.Set("X-Request-Id", "the-same")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(got) != `{"from":"west"}` || err != nil {
				t.Errorf("%s %s, %v", resp.Status, got, err)
			}
		})
	}
	all.Wait()
}
