package functions

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// share serves other caches of models until ctx ends, if this instance takes part. If its port is taken, the instance goes on without it
// and still fetches from others.
func (m *models) share(ctx context.Context, log *slog.Logger) {
	if !m.fetches() {
		return
	}
	cache, err := m.open()
	if err != nil {
		return // the start reports it
	}
	handler, at := cache.Peers()
	if handler == nil {
		return
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		log.Warn("not serving models to other caches", "listen", at, "error", err)
		return
	}
	s := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() // clients have other peers
	if err := s.Serve(inbound.Bound(s, l, log)); ctx.Err() == nil {
		log.Warn("stopped serving models to other caches", "error", err)
	}
}
