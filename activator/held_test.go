package activator

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// pipes is a listener of in-memory connections, any number without file descriptors.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.accept <- server
	return client
}

// memory returns the memory of the heap and of stacks in use.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // the first leaves the contents of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// heldBody is the size of a held request's body.
const heldBody = 1 << 10

// heldMany lets n requests wait for a function that is asleep, wakes it, and checks that all are answered. It returns
// the memory of an idle connection, and how much more each waiting request takes besides its body: buffers,
// goroutines and a place in the queue.
func heldMany(tb testing.TB, n int) (connection, request float64) {
	b := startBench(tb, func(c *Config) { c.Bodies.Memory = 8 << 30 })
	name := b.function("m", func(f *api.Function) { f.Hold.Capacity, f.Hold.MaxBytes = n, api.GiB })
	i := startFake(tb, name, "m-0001", 64)
	b.a.ObserveInstance(i.set(api.Asleep))
	listener := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: b.a.Handler()}
	go func() { _ = server.Serve(listener) }()
	tb.Cleanup(func() { _ = server.Close() })

	before := memory()
	clients := make([]*bufio.ReadWriter, n)
	for k := range clients {
		c := listener.dial()
		defer c.Close()
		clients[k] = bufio.NewReadWriter(bufio.NewReaderSize(c, 16), bufio.NewWriterSize(c, 16))
		ask(tb, clients[k], "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answered(tb, clients[k])
	}
	idle := memory()
	text := `{"model":"m","messages":[{"role":"user","content":"`
	body := text + strings.Repeat("x", heldBody-len(text)-len(`"}]}`)) + `"}]}`
	for _, c := range clients {
		ask(tb, c, "POST "+chatPath+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	}
	b.eventually("all wait", func() bool { return b.queue(name).Activity().Waiting == n })
	held := memory()
	b.a.ObserveInstance(i.set(api.Awake))
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() { answered(tb, c) })
	}
	all.Wait()
	return float64(idle-before) / float64(n), float64(held-idle)/float64(n) - heldBody
}

func ask(tb testing.TB, c *bufio.ReadWriter, request string) {
	tb.Helper()
	if _, err := c.WriteString(request); err != nil {
		tb.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		tb.Fatal(err)
	}
}

func answered(tb testing.TB, c *bufio.ReadWriter) {
	resp, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		tb.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		tb.Errorf("got %s, %v", resp.Status, err)
	}
}

// TestManyHeld holds more requests than a client usually has, and checks the memory of each.
func TestManyHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector's own memory would count")
	}
	const most = 16 << 10
	connection, request := heldMany(t, 10_000)
	t.Logf("a connection takes %.0f bytes, a held request %.0f more", connection, request)
	if request > most {
		t.Errorf("a held request takes %.0f bytes beside its body and its connection, want at most %d", request, most)
	}
}

// BenchmarkHeld holds 100,000.
func BenchmarkHeld(b *testing.B) { benchmarkHeld(b, 100_000) }

// BenchmarkHeldFew holds a hundred.
func BenchmarkHeldFew(b *testing.B) { benchmarkHeld(b, 100) }

func benchmarkHeld(b *testing.B, n int) {
	for b.Loop() {
		connection, request := heldMany(b, n)
		b.ReportMetric(connection, "B/connection")
		b.ReportMetric(request, "B/request")
	}
}
