package leader

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

const (
	headerTimeout  = 5 * time.Second
	maxHeaderBytes = 32 << 10
	idleTimeout    = 2 * time.Minute
	drainTimeout   = 2 * time.Second
)

// gate stands in for a handler that does not exist yet. Requests wait for a moment; then, or at once if the operator has a problem to
// solve, they are refused.
type gate struct {
	problem func() string
	opened  chan struct{} // closed by open
	next    http.Handler  // written before opened is closed
}

func newGate(problem func() string) *gate {
	return &gate{problem: problem, opened: make(chan struct{})}
}

// open lets requests through to next. Call it once.
func (g *gate) open(next http.Handler) {
	g.next = next
	close(g.opened)
}

const patience = time.Second

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-g.opened:
		g.next.ServeHTTP(w, r)
		return
	default:
	}
	if p := g.problem(); p != "" {
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, "", "the autoscaler can't work yet: %s", p).WithRetryAfter(5*time.Second))
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-g.opened:
		g.next.ServeHTTP(w, r)
	case <-timer.C:
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, "", "the autoscaler is still reading the cluster").WithRetryAfter(time.Second))
	case <-r.Context().Done():
	}
}

func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	s := inbound.NewServer(&http.Server{Handler: inbound.Answered(api.InTurn(h)), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: quiet(log),
		BaseContext: func(net.Listener) context.Context { return ctx }})
	l = inbound.Bound(s.Server, l, log)
	served := make(chan error, 1) // sent to by the server, once
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if s.Shutdown(draining) != nil {
		_ = s.Close() // requests that follow a log are cut
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func quiet(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
