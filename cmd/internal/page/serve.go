package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// Limits for clients of the page.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	mostHeader = 64 << 10
)

// Serve serves the page until ctx ends. Requests may then finish within drain.
func Serve(ctx context.Context, l net.Listener, h http.Handler, drain time.Duration, logger *slog.Logger) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader, ErrorLog: log.New(io.Discard, "", 0)}
	l = inbound.Bound(s, l, logger)
	ended := make(chan error, 1) // sent to once
	go func() { ended <- s.Serve(l) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if s.Shutdown(patience) != nil {
			_ = s.Close()
		}
		err = <-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the page: %w", err)
}
