package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// role makes this program a separate process: "upstream", a model server, or the URL of one, for a proxy before it. So each hop is as in
// production, and the proxy's memory is measured alone.
const role = "ROUSE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch as := os.Getenv(role); as {
	case "":
		os.Exit(m.Run())
	case "upstream":
		next := make(chan bool)
		control := listen()
		go letThrough(control, next)
		serve(upstream(next))
	default:
		p := proxy.New(proxy.Config{Gate: &gate{base: as}, Transport: localhttp.New(64, 3*time.Second)})
		serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/usage" {
				p.ServeHTTP(w, r)
				return
			}
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			_ = json.NewEncoder(w).Encode(usage{m.HeapInuse, m.StackInuse, resident(), processor()})
		}))
	}
}

// usage is a process's memory in use, in bytes, and its processor time.
type usage struct {
	Heap, Stack, Resident uint64
	Processor             time.Duration
}

func processor() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// listen listens and prints the address.
func listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	return l
}

// serve serves until the test that holds our input ends.
func serve(h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	_ = server.Serve(listen())
}

// letThrough lets one event through for each byte that comes.
func letThrough(l net.Listener, next chan<- bool) {
	conn, err := l.Accept()
	if err != nil {
		panic(err)
	}
	in := bufio.NewReader(conn)
	for {
		if _, err := in.ReadByte(); err != nil {
			return
		}
		next <- true
	}
}

// resident returns the process's resident memory, 0 if unknown.
func resident() uint64 {
	raw, _ := os.ReadFile("/proc/self/statm")
	var size, pages uint64
	_, _ = fmt.Sscan(string(raw), &size, &pages)
	return pages * uint64(os.Getpagesize())
}

// spawn starts a process and returns the addresses that it prints.
func spawn(tb testing.TB, as string, addresses int) (at []string) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+as)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		cancel()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	for range addresses {
		address, err := lines.ReadString('\n')
		if err != nil {
			tb.Fatal(err)
		}
		at = append(at, strings.TrimSpace(address))
	}
	return at
}

// chain is an upstream and a proxy before it, each a process.
type chain struct {
	at   map[string]string // URLs of both
	more net.Conn          // each byte lets an event through
}

func newChain(b *testing.B) chain {
	b.Helper()
	up := spawn(b, "upstream", 2)
	more, err := net.Dial("tcp", up[0])
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { more.Close() })
	direct := "http://" + up[1]
	return chain{more: more, at: map[string]string{"direct": direct, "proxy": "http://" + spawn(b, direct, 1)[0]}}
}

const chatChunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n"

// upstream answers at once; with "stream" in the body, with one event and as many more as next lets through.
func upstream(next <-chan bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(raw), `"stream"`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"text":"a"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := w.(http.Flusher)
		_, _ = io.WriteString(w, chatChunk)
		flush.Flush()
		for {
			select {
			case <-next:
				_, _ = io.WriteString(w, chatChunk)
				flush.Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// BenchmarkRequest compares a request to the runtime with one through a proxy: the difference is the cost of the hop.
func BenchmarkRequest(b *testing.B) {
	client := &http.Client{Transport: localhttp.New(4, time.Minute)}
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 800) + `"}]}`
	for name, at := range newChain(b).at {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			defer work(b, name, at)()
			for b.Loop() {
				began := time.Now()
				resp, err := client.Post(at+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				times = append(times, time.Since(began))
			}
			median(b, times)
		})
	}
}

// openStream opens a stream and reads its first event.
func openStream(b *testing.B, client *http.Client, at string) *http.Response {
	resp, err := client.Post(at+"/v1/chat/completions", "application/json", strings.NewReader(`{"stream":true}`))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, len(chatChunk))); err != nil {
		b.Fatal(err)
	}
	return resp
}

// BenchmarkEvent measures the time of one event from the runtime's write to the client's read: nothing is batched.
func BenchmarkEvent(b *testing.B) {
	c := newChain(b)
	for name, at := range c.at {
		b.Run(name, func(b *testing.B) {
			resp := openStream(b, http.DefaultClient, at)
			defer resp.Body.Close()
			buf := make([]byte, len(chatChunk))
			var times []time.Duration
			defer work(b, name, at)()
			for b.Loop() {
				began := time.Now()
				_, _ = c.more.Write([]byte{1})
				if _, err := io.ReadFull(resp.Body, buf); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(began))
			}
			median(b, times)
		})
	}
}

// BenchmarkEventWork is the proxy's own work for an event, without the kernel's.
func BenchmarkEventWork(b *testing.B) {
	rt := roundTripper(func(*http.Request) (*http.Response, error) {
		body := io.NopCloser(&endless{left: b.N})
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, ContentLength: -1}, nil
	})
	p := proxy.New(proxy.Config{Gate: &gate{base: "http://x"}, Transport: rt})
	b.ReportAllocs()
	b.SetBytes(int64(len(chatChunk)))
	p.ServeHTTP(&discard{http.Header{}}, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{}")))
}

// BenchmarkRequestWork is the proxy's own work for a request with a body of 4 KiB.
func BenchmarkRequestWork(b *testing.B) {
	answer := `{"choices":[{"text":"a"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
	rt := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer))}, nil
	})
	p := proxy.New(proxy.Config{Gate: &gate{base: "http://x"}, Transport: rt})
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 800) + `"}]}`
	r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
	r.Header.Set("Content-Type", "application/json")
	b.ReportAllocs()
	for b.Loop() {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		p.ServeHTTP(&discard{http.Header{}}, r)
	}
}

// discard is a client that accepts everything.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Flush()                      {}

// endless returns one event at each read.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left--; e.left < 0 {
		return 0, io.EOF
	}
	return copy(p, chatChunk), nil
}

// BenchmarkOpenStreams opens a thousand streams and reports the proxy's cost of each.
func BenchmarkOpenStreams(b *testing.B) {
	const streams = 1000
	c := newChain(b)
	at := c.at["proxy"]
	client := &http.Client{Transport: api.NewTransport(1)}
	for b.Loop() {
		before := measure(b, at)
		var open []io.Closer
		for range streams {
			open = append(open, openStream(b, client, at).Body)
		}
		_, _ = c.more.Write(make([]byte, 3*streams)) // some events, so that buffers have grown
		after := measure(b, at)
		report := func(name string, from, to uint64) {
			b.ReportMetric((float64(to)-float64(from))/streams/1024, name)
		}
		report("heap-KiB/stream", before.Heap, after.Heap)
		report("stack-KiB/stream", before.Stack, after.Stack)
		report("resident-KiB/stream", before.Resident, after.Resident)
		for _, c := range open {
			c.Close()
		}
	}
}

func measure(b *testing.B, at string) (m usage) {
	resp, err := http.Get(at + "/usage")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		b.Fatal(err)
	}
	return m
}

// work reports the proxy's processor time per operation, which depends less on the machine's load than the time does.
func work(b *testing.B, name, at string) func() {
	if name != "proxy" {
		return func() {}
	}
	before := measure(b, at)
	return func() {
		b.ReportMetric(float64((measure(b, at).Processor-before.Processor).Microseconds())/float64(b.N), "proxy-cpu-µs/op")
	}
}

func median(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1000, "p50-µs")
}
