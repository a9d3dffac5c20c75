package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/functions/process"
)

// hop is the bare server, or programs before one.
type hop struct {
	name string
	*Client
	programs []*Process
	gates
}

// gates are limits of what a hop may cost; 0: none.
type gates struct {
	added   float64 // microseconds of a request, one at a time
	stream  float64 // microseconds of a stream, one at a time
	share   float64 // of the bare server's answers per second, manyAtOnce at a time
	private float64 // MB
}

func (h hop) stop() {
	h.Close()
	for _, p := range h.programs {
		p.Stop()
	}
}

func (h hop) sum(of func(*Process) (float64, error)) (all float64, err error) {
	for _, p := range h.programs {
		v, err := of(p)
		if err != nil {
			return 0, err
		}
		all += v
	}
	return all, nil
}

type load struct {
	name   string
	tokens int
	atOnce int
}

const manyAtOnce = 32

var loads = []load{{"JSON", 1, 1}, {"JSON", 1, 8}, {"JSON", 1, manyAtOnce}, {"a stream of 100 events", 100, 1}, {"a stream of 100 events", 100, 8}}

// reverseProxy as the first argument makes this program Go's own proxy.
const reverseProxy = "reverse-proxy"

func serveReverseProxy(args []string) error {
	target, err := url.Parse(strings.Join(args, " "))
	if err != nil {
		return err
	}
	p := httputil.NewSingleHostReverseProxy(target)
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 2 * manyAtOnce} // net/http's default is 2
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", l.Addr())
	whole := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // an early answer would be cut: golang/go#40747
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.ServeHTTP(w, r)
	}
	return (&http.Server{Handler: http.HandlerFunc(whole), ReadHeaderTimeout: time.Minute}).Serve(l)
}

func (b *localBench) startBare(ctx context.Context) (hop, error) {
	port, err := process.FreePort()
	if err != nil {
		return hop{}, err
	}
	fake, _, err := Start(exec.CommandContext(ctx, b.self, fakeRuntime, "-port", port, "-announce"), "listening on")
	return hop{Client: NewClient(api.Endpoint("http://127.0.0.1:" + port)), programs: []*Process{fake}}, err
}

// llama-swap refuses the eleventh request by default.
func (b *localBench) startLlamaSwap(ctx context.Context) (hop, error) {
	program, err := exec.LookPath("llama-swap")
	if err != nil {
		return hop{}, err
	}
	at, config := "127.0.0.1:0", filepath.Join(b.dir, "llama-swap.yaml")
	if port, err := process.FreePort(); err == nil {
		at = "127.0.0.1:" + port
	}
	text := fmt.Sprintf("models:\n  fake:\n    cmd: %s %s -port ${PORT}\n    checkEndpoint: /v1/models\n    concurrencyLimit: %d\n", b.self, fakeRuntime, 2*manyAtOnce)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return hop{}, err
	}
	p, _, err := Start(exec.CommandContext(ctx, program, "-config", config, "-listen", at), "listening on")
	return hop{name: "llama-swap", Client: NewClient(api.Endpoint("http://" + at)), programs: []*Process{p}}, err
}

// hops measures servers in turns; the first is bare.
func (b *localBench) hops(ctx context.Context, servers []hop, loads []load, model, against string) ([]report.Measurement, error) {
	var took, rate, processor []report.Measurement
	memory, err := private(ctx, servers, chat(model, 1, false), oneAwake)
	if err != nil {
		return nil, err
	}
	for _, l := range loads {
		all, err := b.series(ctx, servers, l, chat(model, l.tokens, l.tokens > 1))
		if err != nil {
			return nil, err
		}
		for i, h := range servers[1:] {
			own, name := all[i+1], fmt.Sprintf("%s, %s, %d at a time", h.name, l.name, l.atOnce)
			t := report.Compare(report.Measurement{Name: name, Unit: "µs", Against: against,
				What: "the p50 of rounds of 500 ms of chat requests over TCP on loopback, keep-alive, the same client code on all sides"}, own.took, all[0].took)
			r := report.Compare(report.Measurement{Name: name + ", answers", Unit: "requests/s", Against: against,
				What: "answers to these requests in a second; the client and all servers share the machine's cores"}, own.rate, all[0].rate)
			switch {
			case l.atOnce == 1 && l.tokens == 1 && h.added > 0:
				t = t.Gated(t.Difference <= h.added, "difference ≤ %g µs", h.added)
			case l.atOnce == 1 && l.tokens > 1 && h.stream > 0:
				t = t.Gated(t.Difference <= h.stream, "difference ≤ %g µs", h.stream)
			case l.atOnce == manyAtOnce && h.share > 0:
				r = r.Gated(r.Ratio >= h.share, "ratio ≥ %g", h.share)
			}
			took, rate = append(took, t), append(rate, r)
			processor = append(processor, report.Of(report.Measurement{Name: name + ", processor", Unit: "µs",
				What: "user and system time for each of these requests, of all processes but the model server's and the client's"}, own.processor...))
		}
	}
	after, err := private(ctx, servers, chat(model, 1, false), "after all of that")
	return slices.Concat(took, rate, processor, memory, after), err
}

const oneAwake = "with one instance awake"

func private(ctx context.Context, servers []hop, body []byte, when string) (all []report.Measurement, err error) {
	for _, h := range servers[1:] {
		if err := h.Post(ctx, pathChat, body); err != nil {
			return nil, fmt.Errorf("%s: %w", h.name, err)
		}
		mb, err := h.sum((*Process).Private)
		if err != nil {
			return nil, err
		}
		m := report.Of(report.Measurement{Name: h.name + ", memory " + when, Unit: "MB", What: "private memory of all processes but the model server's and the client's"}, mb)
		if h.private > 0 && when == oneAwake {
			m = m.Gated(mb <= h.private, "≤ %g MB", h.private)
		}
		all = append(all, m)
	}
	return all, nil
}

type series struct{ took, rate, processor []float64 }

func (b *localBench) series(ctx context.Context, servers []hop, l load, body []byte) ([]series, error) {
	all := make([]series, len(servers))
	for n := range b.rounds(15) + 1 {
		for i, h := range servers {
			before, err := h.sum((*Process).FamilyTime)
			if err != nil {
				return nil, err
			}
			took, rate, err := Flood(b.while(500*time.Millisecond), l.atOnce, func() error { return h.Post(ctx, pathChat, body) })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", h.name, err)
			}
			after, err := h.sum((*Process).FamilyTime)
			if err != nil {
				return nil, err
			}
			if s := &all[i]; n > 0 { // the first round starts processes and opens connections
				s.took, s.rate = append(s.took, report.Quantile(took, 0.5)), append(s.rate, rate)
				s.processor = append(s.processor, (after-before)*1e6/float64(len(took)))
			}
		}
	}
	return all, nil
}
