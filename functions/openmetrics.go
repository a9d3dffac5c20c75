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

// metricsTime bounds one reading of the metrics; metricsRest bounds how long a connection stays idle.
const (
	metricsTime = 30 * time.Second
	metricsRest = 2 * time.Minute
)

// serveMetrics serves the metrics at their own address until ctx ends. Failures are only logged: the instance's task is to serve its
// model.
func (f *function) serveMetrics(ctx context.Context) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.cfg.MetricsListen)
	if err != nil {
		f.cfg.Logger.Warn("metrics are not served at an address of their own: name another with --metrics-listen, or none", "error", err)
		return
	}
	metrics := f.metrics.Handler()
	s := &http.Server{ReadTimeout: metricsTime, WriteTimeout: metricsTime, IdleTimeout: metricsRest, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(f.cfg.Logger.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" || r.Method != http.MethodGet {
				api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "%s %.100s: there is /metrics here and nothing else", r.Method, r.URL.Path))
				return
			}
			metrics.ServeHTTP(w, r)
		})}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(inbound.Bound(s, l, f.cfg.Logger)); ctx.Err() == nil {
		f.cfg.Logger.Warn("metrics are not served any more", "error", err)
	}
}
