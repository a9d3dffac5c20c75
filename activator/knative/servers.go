package knative

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
)

type servers struct {
	requests []*http.Server
	others   []*http.Server // until the end: instances still wake
}

// Each server that fails sends to failed, which has room for all.
func (p *process) listen() (servers, chan error) {
	at := func(port int, h http.Handler) *http.Server { return newServer(":"+strconv.Itoa(port), h) }
	p.profiler.IdleTimeout = idleTimeout
	s := servers{
		others: []*http.Server{at(control.ActivatorPort, inbound.Answered(api.InTurn(p.control))), at(control.MetricsPort, inbound.Answered(p.metrics)), p.profiler},
	}
	if p.handler != nil {
		s.requests = []*http.Server{at(portHTTP, p.handler), at(portH2C, p.handler)}
	}
	failed := make(chan error, 8)
	run := func(server *http.Server, listen func() error) {
		go func() {
			if err := listen(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", server.Addr, err)
			}
		}()
	}
	for _, server := range s.requests {
		run(server, func() error {
			return listenAndServe(server, p.log, func(l net.Listener) net.Listener { return inbound.Guard(server, l, activator.WriteError) })
		})
	}
	for _, server := range s.others {
		run(server, func() error {
			return listenAndServe(server, p.log, func(l net.Listener) net.Listener {
				if server == s.others[0] {
					return p.peers.Listen(l)
				}
				return l
			})
		})
	}
	if p.stock == nil || p.stock.certs == nil {
		return s, failed
	}
	secure := at(portTLS, p.handler)
	cfg, err := tlsConfig(p.stock.certs)
	if err != nil {
		failed <- err
		return s, failed
	}
	run(secure, func() error { return listenAndServe(secure, p.log, overTLS(secure, cfg)) })
	s.requests = append(s.requests, secure)
	return s, failed
}

// finish blocks until all requests are answered or ctx ends.
func (s servers) finish(ctx context.Context) {
	var all sync.WaitGroup
	for _, server := range s.requests {
		all.Go(func() { _ = server.Shutdown(ctx) }) // the rest is closed
	}
	all.Wait()
}

func (s servers) close() {
	for _, server := range append(s.requests, s.others...) {
		_ = server.Close()
	}
}

// Knative's chain has its own metrics port.
func metricsHandler(registry *prometheus.Registry, ready func() error) http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return m
}
