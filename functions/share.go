package functions

import (
	"context"
	"log/slog"
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
	if handler, at := cache.Peers(); handler != nil {
		aside(ctx, log, "models for other caches (--share-listen)", at, handler.ServeHTTP)
	}
}
