package functions

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// serveMetrics serves the metrics at their own address until ctx ends.
func (f *function) serveMetrics(ctx context.Context) {
	metrics := f.metrics.Handler()
	aside(ctx, f.cfg.Logger, "metrics (--metrics-listen)", f.cfg.MetricsListen, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Method != http.MethodGet {
			api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "%s %.100s: there is /metrics here and nothing else", r.Method, r.URL.Path))
			return
		}
		metrics.ServeHTTP(w, r)
	})
}

// aside serves at a second address until ctx ends. Failures are only logged: the instance's task is to serve its model.
func aside(ctx context.Context, log *slog.Logger, what, at string, handler http.HandlerFunc) {
	log = log.With("listen", at)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		log.Warn(what+" are not served at an address of their own: name another, or none", "error", err)
		return
	}
	s := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(inbound.Bound(s, l, log)); ctx.Err() == nil {
		log.Warn(what+" are not served any more", "error", err)
	}
}
