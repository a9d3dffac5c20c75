package functions

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/adapters"
	"github.com/rouse-dev/rouse/functions/handler"
	"github.com/rouse-dev/rouse/functions/kvevents"
	"github.com/rouse-dev/rouse/functions/leader"
	"github.com/rouse-dev/rouse/functions/metrics"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/pyfunc"
	"github.com/rouse-dev/rouse/functions/registration"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/functions/supervise"
	"github.com/rouse-dev/rouse/internal/cloudevent"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/shutdown"
)

const (
	logLines = 50 // of the runtime's output that are kept
	// idleConnection is shorter than the five seconds after which common servers
	// close an idle connection: a request sent at that moment would be lost.
	idleConnection = 3 * time.Second
	lastAnswers    = 2 * time.Second // for handlers to finish after the runtime has gone
	// requestTime bounds the time that a request takes to come, body and all: it has
	// a place in the runtime by then.
	requestTime = 5 * time.Minute
)

// function is an instance that runs.
type function struct {
	cfg         Config
	transport   *localhttp.Transport
	log         *process.Log
	shim        *shim.Client // the runtime's parent; nil: we are
	models      *models
	runtime     runtime.Runtime
	supervisor  *supervise.Supervisor
	adapters    *adapters.Registry
	handler     *handler.Handler // nil: none
	handlerShim *shim.Client     // its parent; nil: we are
	door        *inbound.Door    // reads clients' bodies
	proxy       *proxy.Proxy
	clients     http.Handler // the proxy, and what is wrapped around it
	pyfunc      *pyfunc.Handler
	metrics     *metrics.Metrics
	kv          *kvevents.Follower           // of what the runtime publishes of its prefix cache; nil: it publishes nothing
	emit        func(api.Event)              // nil: nobody wants events
	events      *cloudevent.Sender           // posts them; nil: nobody does
	agent       *registration.Agent          // nil: of no cluster
	endpoint    atomic.Pointer[api.Endpoint] // the runtime's; nil before the first start
	settled     chan struct{}                // closed once it is known whether a runtime that was taken over serves
	settle      func()                       // closes settled, once
	trying      sync.WaitGroup               // tries whether connections to a command can be reused
	ending      context.Context              // ends when the instance does: followers of the logs leave
	end         context.CancelFunc           // ends ending
}

// Run runs one instance. It returns nil after a stop call or the end of ctx, once
// nothing of the runtime is left, and an error where it could not begin.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Listen == "" {
		return fmt.Errorf("function %s: it has nowhere to listen: set Listen", cfg.Function.Name)
	}
	listener, endpoint, err := listen(cfg.Listen) // first: who looks for us finds us
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
		err = alone(ctx, cfg, listener)
	}
	if err != nil {
		return fmt.Errorf("function %s: %w", cfg.Function.Name, err)
	}
	return nil
}

// prepare makes the process and its folder ready for a runtime. clean takes away
// what it made.
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
	if !strings.HasPrefix(dir, os.TempDir()) { // what the runtime makes has to go there too
		cfg.Env = append(slices.Clip(cfg.Env), "TMPDIR="+dir)
	}
	return remove, nil
}

// alone runs an instance that shares its runtime with nobody.
func alone(ctx context.Context, cfg Config, listener net.Listener) error {
	_, run, err := begin(ctx, cfg, listener, nil)
	if err != nil {
		return err
	}
	return run(ctx)
}

// keep starts a shim, where there is to be one; nil: there is not.
func keep(ctx context.Context, cfg Config, log *process.Log) (*shim.Client, error) {
	if len(cfg.Keep) == 0 {
		return nil, nil
	}
	return shim.Open(ctx, keeping(cfg, log))
}

// work runs an instance together with the other workers of its folder.
func work(ctx context.Context, cfg Config, listener net.Listener) error {
	cfg.Dir = filepath.Join(cfg.Workers, "run") // what the runtime needs must outlive each of us
	clean, err := prepare(&cfg)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer clean()
	log := process.NewLog(logLines, cfg.Output)
	if cfg.Listening != nil {
		cfg.Listening(cfg.Listen)
		cfg.Listening = nil // once, whoever leads
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

// runs is what all workers of a folder must have in common. Environments may
// differ: they hold secrets, which are renewed.
func runs(fn api.Function) string {
	fn = fn.WithoutSecrets()
	raw, _ := json.Marshal([]any{fn.Model, fn.Aliases, fn.Handler, fn.Runtime}) // texts and lists of them always marshal
	return fmt.Sprintf("%s %x", fn.Name, sha256.Sum256(raw))
}

// keeping is how a shim is started.
func keeping(cfg Config, log *process.Log) shim.ClientConfig {
	return shim.ClientConfig{Command: cfg.Keep, Env: cfg.Env, Lines: log.Write, Logger: cfg.Logger}
}

// newServer is how requests are taken.
func newServer(cfg Config) *http.Server {
	return &http.Server{
		Protocols: inbound.Protocols(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: requestTime, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// serving is a server that serves.
type serving struct {
	*shutdown.Server // nil: requests come without one

	served chan error // sent to once, by the server's goroutine; one place: it waits for nobody
}

// serve serves until it is told to end, and says that it does. Without a listener there is nothing to serve.
func serve(cfg Config, listener net.Listener, h http.Handler) serving {
	if listener == nil {
		return serving{nil, make(chan error, 1)}
	}
	bare := newServer(cfg)
	bare.Handler = api.InTurn(h)
	s := serving{shutdown.New(bare), make(chan error, 1)}
	listener = inbound.Guard(bare, inbound.Bound(bare, listener, cfg.Logger), api.WriteErrorTo)
	go func() { s.served <- s.Serve(listener) }()
	if cfg.Listening != nil {
		cfg.Listening(cfg.Listen)
	}
	return s
}

// report posts a change of state.
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

// run serves until the supervisor has ended. Every goroutine that it starts has
// ended when it returns.
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
		parts.Go(func() { _ = f.events.Run(alive) }) // it only ends with alive
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

// close ends what the parts have begun that [function.run] does not end.
func (f *function) close() {
	f.end()
	if f.handlerShim != nil {
		f.handlerShim.Close()
	}
}

// stop drains and ends the runtime, or kills it if told so meanwhile. Where
// another worker can go on with it, it is drained and left.
func (f *function) stop(kill func()) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		end := f.supervisor.Stop
		if f.shim != nil && f.shim.Peers() > 0 {
			end = f.supervisor.Leave
		}
		_, _ = end(context.Background(), control.StopRequest{Drain: f.cfg.Drain}) // fails for nobody
	}()
	select {
	case <-stopped:
	case <-f.cfg.Kill:
		kill()
		<-stopped
	}
}

// shutdown lets handlers write their last answers.
func (s serving) shutdown() {
	if s.Server == nil {
		s.served <- nil
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close() // the rest is cut
	}
}
