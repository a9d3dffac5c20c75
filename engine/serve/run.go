package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/worker"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// lastGasp is for the current step to end, and for handlers to tell their clients.
const lastGasp = 5 * time.Second

// Run loads the model, generates a token, listens, and writes "listening on " and the address to stdout. Once ctx ends
// it drains for cfg.DrainTimeout, ends other requests with an error, and returns nil.
func Run(ctx context.Context, cfg Config, stdout io.Writer) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.withDefaults()
	began := time.Now()
	kept := conversations(cfg) // before anyone opens the file
	w := worker.Open(worker.Options{
		Place: cfg.Worker, Shards: cfg.Shards, Device: cfg.Device, Python: cfg.Python, Log: cfg.Log,
		Load: worker.Load{Model: cfg.Model, Threads: cfg.Threads, Context: cfg.Context, Sequences: cfg.MaxSeqs, Projector: cfg.Projector, CacheBytes: cfg.CacheBytes, TileDir: cfg.TileDir, TileLimit: cfg.TileLimit},
	})
	var info worker.Info
	started := make(chan error, 1) // with info set
	go func() {
		var err error
		info, err = w.Start(ctx)
		started <- err
	}()
	m, err := load(cfg) // while the worker starts
	failed := <-started
	if err == nil && failed != nil {
		err = fmt.Errorf("load model %s: %w", cfg.Model, failed)
		if unusable(cfg.Model) {
			err = &ModelError{err}
		}
	}
	if err != nil {
		return errors.Join(err, w.Close())
	}
	if cfg.Pooling == "" {
		cfg.Pooling = m.pooling
	}
	e, err := engine.Over(w, info, m.tok, engine.Config{
		Seats: cfg.MaxSeqs, Budget: cfg.Budget, Context: cfg.Context, Sync: cfg.Sync, NoPrefix: cfg.NoPrefix, Draft: cfg.Draft, Adapters: cfg.MaxAdapters, Keep: kept,
	})
	if err != nil {
		return errors.Join(err, w.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan error, 1)
	go func() { stopped <- e.Run(running) }()
	loadTime := time.Since(began)

	s := NewServer(e, m.template, cfg)
	s.about, s.mark = m.about, m.mark
	if e.Model().Image.Size > 0 {
		s.about.Can = append(s.about.Can, "vision")
	}
	err = announceAndServe(ctx, cfg, e, s, stop, stdout, loadTime)
	stop()
	return errors.Join(err, <-stopped)
}

func announceAndServe(ctx context.Context, cfg Config, e *engine.Engine, s *Server, stop func(), stdout io.Writer, loadTime time.Duration) error {
	began := time.Now()
	token, err := e.Probe(ctx)
	if err != nil {
		return fmt.Errorf("the model %s can't generate a token: %w", cfg.Model, err)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Adapters)) {
		if err := e.LoadAdapter(ctx, name, cfg.Adapters[name]); err != nil {
			return err
		}
	}
	l, address, err := Listen(cfg.Listen)
	if err != nil {
		return err
	}
	model := e.Model()
	cfg.Log.Info("ready", "model", cfg.Model, "names", cfg.Names, "architecture", model.Arch, "context", e.Context(),
		"address", address, "load", loadTime, "probe", time.Since(began), "token", token)
	if _, err := fmt.Fprintf(stdout, "listening on %s\n", address); err != nil {
		return errors.Join(fmt.Errorf("announce the address: %w", err), l.Close())
	}
	return Serve(ctx, l, s, stop)
}

// Serve serves on l until ctx ends, then drains like [Run]. It calls stop, which ends the engine, if that takes too
// long.
func Serve(ctx context.Context, l net.Listener, s *Server, stop func()) error {
	server := inbound.NewServer(&http.Server{
		Handler:           inTurn(s),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	})
	l = inbound.Guard(server.Server, inbound.Bound(server.Server, l, s.log), func(w http.ResponseWriter, _ *http.Request, err error) { writeError(w, toError(err)) })
	failed := make(chan error, 1) // of the accept loop
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.log.Info("draining", "open", s.engine.Stats().Open, "timeout", s.cfg.DrainTimeout)
	err := shut(server, s.cfg.DrainTimeout)
	if err != nil {
		s.log.Warn("drain timed out: the remaining requests end with an error", "open", s.engine.Stats().Open)
		stop()
		err = shut(server, lastGasp)
	}
	if err != nil {
		err = server.Close()
	}
	<-failed //nolint:errcheck // the server was told to end, and how is in err
	return err
}

func shut(server *inbound.Server, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return server.Shutdown(ctx)
}
