// The benchmark exchange measures what a link between a cluster and a front door costs, on loopback and in one process:
//
//	go run ./e2e/bench exchange -o docs/bench/exchange.json
//
// A request over the link (activator/federation/protocol, TLS 1.3) is compared with the same one sent to the cluster's own address. Both
// have a body of 1 KiB and an answer of 1 KiB. Then many streams are open on one link at once, each on a connection of its own,
// and one reader among them stops reading.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func runExchange(ctx context.Context, r *report.Run) error {
	n, streams := report.Sized(r.Small, 5000, 100), report.Sized(r.Small, 2000, 100) // each stream needs two files
	w, err := newWorld()
	if err != nil {
		return err
	}
	defer w.close()
	w.small = r.Small
	part := func(name string, measure func(int) (report.Measurement, error), n int) report.Part {
		return report.Part{Name: name, Measure: func(context.Context) ([]report.Measurement, error) {
			m, err := measure(n)
			return []report.Measurement{m}, err
		}}
	}
	return r.Parts(ctx, part("one", w.one, n), part("many", w.many, n), part("open", w.open, streams), part("slow", w.slow, min(1000, streams)))
}

// world is a cluster's server, reached directly and by a link.
type world struct {
	link   *protocol.Pool
	direct *http.Client
	url    string
	ends   []func()
	finish chan struct{} // closed: streams that are open end
	small  bool

	flooded atomic.Int64 // pieces of floods that were written
}

// piece is the body of a request and of an answer.
var piece = bytes.Repeat([]byte("x"), 1<<10)

func newWorld() (*world, error) {
	w := &world{link: protocol.NewPool(func(net.Conn) {}), direct: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, finish: make(chan struct{})}
	near, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(w.serve), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(near) }() // ends with Close
	w.ends = append(w.ends, func() { _ = server.Close() })
	w.url = "http://" + near.Addr().String()
	certificate, key, err := SelfSigned()
	if err != nil {
		return nil, err
	}
	own, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	both := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: trusted, MinVersion: tls.VersionTLS13, NextProtos: []string{protocol.LinkProtocol}, DynamicRecordSizingDisabled: true}
	far, err := tls.Listen("tcp", "127.0.0.1:0", both)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := far.Accept()
			if err != nil {
				return
			}
			_ = protocol.AcceptLink(context.Background(), conn, func(protocol.LinkHello) (*protocol.Pool, error) { return w.link, nil })
		}
	}()
	agent := protocol.NewLinkServer(protocol.LinkHello{}, func(ctx context.Context) (net.Conn, error) {
		return (&tls.Dialer{Config: both}).DialContext(ctx, "tcp", far.Addr().String())
	}, func() {}, http.HandlerFunc(w.serve))
	first, err := agent.Dial(context.Background())
	if err != nil {
		return nil, err
	}
	agent.Keep(64)
	go agent.Serve(context.Background(), first) // ends with Close
	w.ends = append(w.ends, func() { _, _ = agent.Close(), far.Close() })
	return w, nil
}

func (w *world) close() {
	for _, end := range w.ends {
		end()
	}
}

// serve answers; with /open it sends a piece, and more when the streams are to end; with /flood pieces without end.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = rw.Write(piece)
	switch r.URL.Path {
	case "/open":
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-w.finish:
		case <-r.Context().Done():
		}
	case "/flood":
		for r.Context().Err() == nil {
			if _, err := rw.Write(piece); err != nil {
				return
			}
			w.flooded.Add(1)
		}
	default:
	}
}

// ask sends a request over the link, or directly, and reads its answer whole.
func (w *world) ask(far bool) (time.Duration, error) {
	begun := time.Now()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.url+"/", bytes.NewReader(piece))
	if err != nil {
		return 0, err
	}
	var resp *http.Response
	if far {
		resp, err = w.link.RoundTrip(r)
	} else {
		resp, err = w.direct.Do(r)
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if got, err := io.Copy(io.Discard, resp.Body); err != nil || got != int64(len(piece)) {
		return 0, fmt.Errorf("an answer of %d bytes: %w", got, err)
	}
	return time.Since(begun), nil
}

// one measures one request after another, in turn on both ways.
func (w *world) one(n int) (report.Measurement, error) {
	var far, near []float64
	for k := range n {
		for _, by := range []bool{true, false} {
			took, err := w.ask(by)
			if err != nil {
				return report.Measurement{}, err
			}
			switch {
			case k < n/10: // warm
			case by:
				far = append(far, report.Millis(took))
			default:
				near = append(near, report.Millis(took))
			}
		}
	}
	m := report.Compare(report.Measurement{Name: "one request", What: "a request with 1 KiB over a link, and the answer of 1 KiB", Unit: "ms", N: len(far), Against: "the same request sent directly"}, far, near)
	return m.Gated(m.DifferenceOfP50 <= 0.3, "p50 is at most 0.3 ms more"), nil
}

// many measures requests a second of 32 clients, in rounds on both ways.
func (w *world) many(n int) (report.Measurement, error) {
	var far, near []float64
	for range 10 {
		for _, by := range []bool{true, false} {
			begun := time.Now()
			if err := w.crowd(32, n/32, by, nil); err != nil {
				return report.Measurement{}, err
			}
			rate := float64(n/32*32) / time.Since(begun).Seconds()
			if by {
				far = append(far, rate)
			} else {
				near = append(near, rate)
			}
		}
	}
	m := report.Compare(report.Measurement{Name: "requests a second", What: "32 clients on one link, 1 KiB each way", Unit: "1/s", N: 10, Against: "the same clients sent directly, with connections of their own"}, far, near)
	return m.Gated(m.Rouse.P50 >= 0.7*m.Baseline.P50, "at least 70 %% of the direct ones"), nil
}

// crowd has clients send requests, each n.
func (w *world) crowd(size, n int, far bool, took func(time.Duration)) error {
	var clients sync.WaitGroup
	var mu sync.Mutex // guards all and calls of took
	var all error
	for range size {
		clients.Go(func() {
			for range n {
				d, err := w.ask(far)
				mu.Lock()
				all = errors.Join(all, err)
				if took != nil {
					took(d)
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	clients.Wait()
	return all
}

// stream opens a stream over the link, and reads its first piece.
func (w *world) stream(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := w.link.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(resp.Body, make([]byte, len(piece)))
	return resp, err
}

// open measures the memory of n streams that are open at once, at both ends together.
func (w *world) open(n int) (report.Measurement, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := heapAndStacks()
	for k := range n {
		resp, err := w.stream(ctx, "/open")
		if err != nil {
			return report.Measurement{}, fmt.Errorf("stream %d: %w", k, err)
		}
		defer resp.Body.Close()
	}
	each := float64(heapAndStacks()-before) / float64(n) / 1024
	return report.Measurement{Name: "memory of an open stream", What: fmt.Sprintf("heap and stacks of both ends, %d streams open on one link", n), Unit: "KiB", N: n, Rouse: report.Summarise([]float64{each})}, nil
}

func heapAndStacks() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse) //nolint:gosec // far below its bound
}

// Rounds of [world.slow], and requests of each of four clients in one measurement.
const (
	slowRounds, slowRoundsSmall     = 21, 2
	slowRequests, slowRequestsSmall = 500, 10
)

// slow measures requests beside n open streams, one of which is a flood that nobody reads. A machine is never quiet: each round measures with the
// flood, and twice without, in an order that changes; what the two without differ by is noise.
func (w *world) slow(n int) (report.Measurement, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range n - 1 {
		resp, err := w.stream(ctx, "/open")
		if err != nil {
			return report.Measurement{}, err
		}
		defer resp.Body.Close()
	}
	const flooded = 2
	var took [3][]float64 // without, without again, and beside the flood
	var late [3][]float64 // the 99th percentile of each round
	rounds := report.Sized(w.small, slowRounds, slowRoundsSmall)
	for round := range rounds {
		for k := range took {
			kind := (round + k) % len(took)
			one, err := w.beside(ctx, kind == flooded)
			if err != nil {
				return report.Measurement{}, err
			}
			took[kind], late[kind] = append(took[kind], one...), append(late[kind], report.Quantile(one, 0.99))
		}
	}
	m := report.Compare(report.Measurement{Name: "requests beside a slow reader", What: fmt.Sprintf("4 clients on a link with %d open streams, one of which sends without end and is not read", n), Unit: "ms", N: len(took[flooded]), Against: "without the slow reader"}, took[flooded], took[0])
	p99 := func(kind int) float64 { return report.Quantile(late[kind], 0.5) }
	calm := (p99(0) + p99(1)) / 2
	m.Note = fmt.Sprintf("p99, the median of %d rounds: %.3f ms with it; %.3f ms and %.3f ms without it, which is the noise; p50 %.3f ms, %.3f ms and %.3f ms", rounds,
		p99(flooded), p99(0), p99(1), report.Quantile(took[flooded], 0.5), report.Quantile(took[0], 0.5), report.Quantile(took[1], 0.5))
	return m.Gated(p99(flooded) <= 1.1*calm, "p99 is at most 10 %% more"), nil
}

// beside measures the requests of four clients, beside a flood that nobody reads or without one.
func (w *world) beside(ctx context.Context, flood bool) (took []float64, err error) {
	if flood {
		ctx, end := context.WithCancel(ctx)
		defer end()
		resp, err := w.stream(ctx, "/flood") // and nothing more is read
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		w.stuck()
	}
	err = w.crowd(4, report.Sized(w.small, slowRequests, slowRequestsSmall), true, func(d time.Duration) { took = append(took, report.Millis(d)) })
	return took, err
}

// stuck waits until the flood has filled its window, and stands.
func (w *world) stuck() {
	for before := int64(-1); ; {
		now := w.flooded.Load()
		if now == before {
			return
		}
		before = now
		time.Sleep(20 * time.Millisecond)
	}
}
