package functions

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/adapters"
	"github.com/rouse-dev/rouse/functions/leader"
	"github.com/rouse-dev/rouse/functions/metrics"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/pyfunc"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/functions/supervise"
	"github.com/rouse-dev/rouse/internal/cloudevent"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

const (
	logLines = 50
	// Common servers close an idle connection after five seconds; a request sent at that moment would be lost.
	idleConnection = 3 * time.Second
	lastAnswers    = 2 * time.Second // for handlers to finish after the runtime has gone
	// requestTime bounds a request's arrival, with its body. It already holds a slot.
	requestTime = 5 * time.Minute
)

type function struct {
	cfg         Config
	transport   *localhttp.Transport
	log         *process.Log
	shim        *shim.Client // the runtime's parent; nil: this process is
	models      *models
	snapshot    *snapshot     // nil: none, as handler
	noSnapshot  *api.Snapshot // why it is nil; nil: none is wanted
	runtime     runtime.Runtime
	supervisor  *supervise.Supervisor
	adapters    *adapters.Registry
	handler     *userHandler
	handlerShim *shim.Client // its parent; nil: this process is
	door        *inbound.Door
	proxy       *proxy.Proxy
	clients     http.Handler // the proxy inside Config.Wrap
	pyfunc      *pyfunc.Handler
	metrics     *metrics.Metrics
	kv          *metrics.Follower            // nil: the runtime publishes no prefix cache events
	emit        func(api.Event)              // nil: nobody wants events
	events      *cloudevent.Sender           // nil: none are posted
	agent       *registrar                   // nil: outside of a cluster
	endpoint    atomic.Pointer[api.Endpoint] // the runtime's; nil before the first start
	settled     chan struct{}                // closed once it is known whether an adopted runtime serves
	settle      func()                       // closes settled, once
	trying      sync.WaitGroup
	ending      context.Context // ends with the instance
	end         context.CancelFunc
}

// Run runs one instance and blocks until nothing of the runtime is left. It returns nil after a stop call or the end of ctx.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Listen == "" {
		return fmt.Errorf("function %s: it has nowhere to listen: set Listen", cfg.Function.Name)
	}
	listener, endpoint, err := listen(cfg.Listen) // first, so that clients can connect
	if err != nil {
		return fmt.Errorf("function %s: %w", cfg.Function.Name, err)
	}
	cfg.Listen = endpoint
	switch {
	case cfg.Join != nil:
		err = joined(ctx, cfg, listener)
	case cfg.Workers != "":
		err = work(ctx, cfg, listener)
	default:
		var run func(context.Context) error
		if _, run, err = begin(ctx, cfg, listener, nil); err == nil {
			err = run(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("function %s: %w", cfg.Function.Name, err)
	}
	return nil
}

func prepare(cfg *Config) (clean func(), err error) {
	clean = func() {}
	if cfg.OwnProcess {
		if err := process.Adopt(); err != nil {
			return clean, err
		}
	}
	if cfg.Dir != "" {
		return clean, os.MkdirAll(cfg.Dir, 0o700)
	}
	dir, remove, err := temporary()
	if err != nil {
		return clean, err
	}
	cfg.Dir = dir
	if !strings.HasPrefix(dir, os.TempDir()) { // the runtime's temporary files too
		cfg.Env = append(slices.Clip(cfg.Env), "TMPDIR="+dir)
	}
	return remove, nil
}

func keep(ctx context.Context, cfg Config, log *process.Log) (*shim.Client, error) {
	if len(cfg.Keep) == 0 {
		return nil, nil
	}
	return shim.Open(ctx, keeping(cfg, log))
}

func work(ctx context.Context, cfg Config, listener net.Listener) error {
	cfg.Dir = filepath.Join(cfg.Workers, "run") // the runtime's files must outlive each worker
	clean, err := prepare(&cfg)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer clean()
	log := process.NewLog(logLines, cfg.Output)
	if cfg.Listening != nil {
		cfg.Listening(cfg.Listen)
		cfg.Listening = nil // once, whichever worker leads
	}
	return leader.Run(ctx, leader.Config{
		Dir: cfg.Workers, Runs: runs(cfg.Function), Listener: listener, Server: newServer(cfg), Shim: keeping(cfg, log),
		MaxBody: cfg.MaxBody, Drain: cfg.Drain, Kill: cfg.Kill, Logger: cfg.Logger,
		Lead: func(ctx context.Context, l *leader.Leadership) error {
			f, err := assemble(cfg, log, l.Shim, nil)
			if err != nil {
				return errors.Join(err, l.Listener.Close())
			}
			l.Serve(f)
			return f.run(ctx, serve(cfg, l.Listener, f))
		},
	})
}

// runs returns a digest of the settings that all workers of a folder must share. Environments may differ.
func runs(fn api.Function) string {
	fn = fn.WithoutSecrets()
	raw, _ := json.Marshal([]any{fn.Model, fn.Aliases, fn.Handler, fn.Runtime})
	return fmt.Sprintf("%s %x", fn.Name, sha256.Sum256(raw))
}

func keeping(cfg Config, log *process.Log) shim.ClientConfig {
	return shim.ClientConfig{Command: cfg.Keep, Env: cfg.Env, Lines: log.Write, Logger: cfg.Logger}
}

func newServer(cfg Config) *http.Server {
	return &http.Server{
		Protocols: inbound.Protocols(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: requestTime, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
}

type serving struct {
	*inbound.Server // nil: requests come without one

	served chan error // sent to once; buffered: the server never blocks
}

func serve(cfg Config, listener net.Listener, h http.Handler) serving {
	if listener == nil {
		return serving{nil, make(chan error, 1)}
	}
	bare := newServer(cfg)
	bare.Handler = api.InTurn(h)
	s := serving{inbound.NewServer(bare), make(chan error, 1)}
	listener = inbound.Guard(bare, inbound.Bound(bare, listener, cfg.Logger), api.WriteErrorTo)
	go func() { s.served <- s.Serve(listener) }()
	if cfg.Listening != nil {
		cfg.Listening(cfg.Listen)
	}
	return s
}

func (f *function) report(s api.InstanceStatus) {
	if s.State != api.Starting {
		f.settle()
	}
	f.pyfunc.Observe(s)
	if f.emit != nil {
		f.emit(stateEvent(s))
	}
}

func stateEvent(s api.InstanceStatus) api.Event {
	return api.NewEvent(api.EventInstanceState, "/instance/"+s.Function.Namespace()+"/"+string(s.Instance), s.Function, s)
}

// run waits for every goroutine that it starts.
func (f *function) run(ctx context.Context, door serving) error {
	alive := f.ending
	defer f.end()
	supervised := make(chan error, 1)
	killed, kill := context.WithCancel(alive)
	go func() { supervised <- f.supervisor.Run(killed) }()

	var parts sync.WaitGroup
	var failed, handled error
	parts.Go(func() { f.watchLoad(alive) })
	parts.Go(func() { f.watchBrought(alive) })
	parts.Go(func() { f.models.share(alive, f.cfg.Logger) })
	if f.kv != nil {
		parts.Go(func() { f.kv.Run(alive) })
	}
	if f.events != nil {
		parts.Go(func() { _ = f.events.Run(alive) }) // fails only when alive ends
	}
	if f.handler != nil {
		parts.Go(func() { handled = f.handler.Run(alive) })
	}
	if f.cfg.MetricsListen != "" {
		parts.Go(func() { f.serveMetrics(alive) })
	}
	select {
	case err := <-door.served:
		failed = fmt.Errorf("serve: %w", err)
		door.served <- err
		kill()
	case err := <-supervised:
		supervised <- err
	case <-f.cfg.Kill:
		kill()
	case <-ctx.Done():
		f.stop(kill)
	}
	err := <-supervised
	kill()
	f.end()
	door.shutdown()
	f.models.release()
	<-door.served //nolint:errcheck // the server was told to end
	parts.Wait()
	f.trying.Wait()
	f.close()
	f.transport.CloseIdleConnections()
	return errors.Join(failed, err, handled)
}

// close ends the parts that run does not end.
func (f *function) close() {
	f.end()
	if f.snapshot != nil {
		f.snapshot.Close()
	}
	if f.handlerShim != nil {
		f.handlerShim.Close()
	}
}

// stop drains and ends the runtime, or leaves it running if another worker can continue with it.
func (f *function) stop(kill func()) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		end := f.supervisor.Stop
		if f.shim != nil && f.shim.Peers() > 0 {
			end = f.supervisor.Leave
		}
		_, _ = end(context.Background(), control.StopRequest{Drain: f.cfg.Drain})
	}()
	select {
	case <-stopped:
	case <-f.cfg.Kill:
		kill()
		<-stopped
	}
}

func (s serving) shutdown() {
	if s.Server == nil {
		s.served <- nil
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close()
	}
}

// listen opens e and returns its actual endpoint. A Unix socket's folder is created, for this user only; a stale socket is replaced.
func listen(e api.Endpoint) (l net.Listener, at api.Endpoint, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("listen on %s: %w", e, err)
		}
	}()
	network, address := e.Network()
	if path, unix := e.Socket(); unix {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, "", err
		}
		if err := removeStale(path); err != nil {
			return nil, "", err
		}
		l, err = net.Listen(network, address)
		if err != nil {
			return nil, "", err
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, "", errors.Join(err, l.Close())
		}
		return l, e, nil
	}
	l, err = net.Listen(network, address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, "", fmt.Errorf("another process listens there; stop it or choose another port: %w", err)
	case err != nil:
		return nil, "", err
	}
	return l, api.Endpoint("http://" + l.Addr().String()), nil
}

// toldHost returns the Host header for the runtime, or "" for the client's. Runtimes on loopback refuse unknown hosts, against DNS
// rebinding. On a loopback port that check stays; web pages can't reach a Unix socket, and a public listener has many names.
func toldHost(e api.Endpoint) string {
	if _, unix := e.Socket(); unix || e == "" {
		return "localhost"
	}
	_, address := e.Network()
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "localhost" || ip != nil && ip.IsLoopback()) {
		return ""
	}
	return "localhost"
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file that is no socket; choose another path or remove it")
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return errors.New("another process listens there; stop it or choose another path")
	}
	return os.Remove(path)
}

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

// aside serves at a second address until ctx ends. Failures are only logged.
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
