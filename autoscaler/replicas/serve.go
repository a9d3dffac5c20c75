package replicas

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// Serve runs a relay and serves its metrics and health until ctx ends.
func Serve(ctx context.Context, listen string, registry *prometheus.Registry, r *Relay) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	well := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }
	mux.HandleFunc("GET /healthz", well)
	mux.HandleFunc("GET /readyz", well)
	server := inbound.NewServer(&http.Server{Handler: inbound.Answered(mux), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute})
	running, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1) // sent to by the server, once
	go func() {
		served <- server.Serve(inbound.Bound(server.Server, l, r.deps.Log))
		stop() // a relay that can't be monitored must not run
	}()
	err = r.Run(running)
	_ = server.Close() // a lost scrape does no harm
	if end := <-served; err == nil && !errors.Is(end, http.ErrServerClosed) {
		err = fmt.Errorf("serve metrics: %w", end)
	}
	return err
}
