package leader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/shutdown"
)

// Config of a worker.
type Config struct {
	// Dir is the folder that the workers of one instance share.
	Dir string
	// Runs says what the worker runs: a name, a space, and what else must be the same
	// for all workers of the folder. A worker that runs something else is refused.
	Runs string
	// Listener is the worker's own door. Run closes it.
	Listener net.Listener
	// Server is how the door serves: its timeouts and protocols. Its Handler is set by Run.
	Server *http.Server
	// Shim is how a shim is started, and what gets an adopted runtime's output;
	// Socket is set by Run.
	Shim shim.ClientConfig
	// Lead is called once, where the worker leads, and leads until it returns. When
	// ctx ends it is to end soon; what it drains is served until then.
	Lead func(ctx context.Context, l *Leadership) error
	// MaxBody bounds the body of a request that is passed on; 0: 64 MiB.
	MaxBody api.Bytes
	// Wait is how long a request waits for a leader; 0: 10 s.
	Wait time.Duration
	// Drain is how long requests may go on when a follower is to end; 0: 30 s.
	Drain time.Duration
	// Kill, when closed, ends that at once; nil: never.
	Kill <-chan struct{}
	// Logger; nil: none.
	Logger *slog.Logger
}

// Leadership is what a leader has.
type Leadership struct {
	// Shim starts the runtime, gives the one that is there, and keeps notes: it is
	// Start, Adopt and Save of a supervise.Config. Its Peers are who could go on.
	Shim *shim.Client
	// Listener is where the other workers send their requests. Who serves it closes it.
	Listener net.Listener

	door *door
}

// Serve lets the worker's own door call the handler directly; until then, it
// sends requests to Listener as the doors of the others do.
func (l *Leadership) Serve(h http.Handler) { l.door.local.Store(&h) }

// Run is a worker. It returns nil once ctx has ended or the instance was stopped,
// and an error where it can't go on; then another worker does.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.defaults(); err != nil {
		return errors.Join(fmt.Errorf("worker: %w", err), cfg.Listener.Close())
	}
	claimed, err := claim(cfg.Dir, cfg.Runs)
	if err != nil {
		return errors.Join(fmt.Errorf("worker: %w", err), cfg.Listener.Close())
	}
	defer claimed.Close()
	w := &worker{cfg: cfg, door: newDoor(cfg), hints: bell.New()}
	defer w.door.transport.CloseIdleConnections()
	cfg.Server.Handler = api.InTurn(w.door)
	server := shutdown.New(cfg.Server)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(cfg.Listener)
		cancel() // without its door it is of no use
	}()
	err = w.run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = nil // it was told to end
	}
	w.shutdown(server)
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// shutdown lets the door's last requests end.
func (w *worker) shutdown(server *shutdown.Server) {
	w.door.last.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.Drain)
	defer cancel()
	shut := make(chan error, 1)
	go func() { shut <- server.Shutdown(ctx) }()
	select {
	case err := <-shut:
		shut <- err
	case <-w.cfg.Kill:
		cancel()
	}
	if <-shut != nil {
		_ = server.Close() // the rest is cut
	}
}

func (c *Config) defaults() error {
	if c.Dir == "" || c.Lead == nil || c.Server == nil {
		return errors.New("Config needs Dir, Lead and Server")
	}
	if c.MaxBody == 0 {
		c.MaxBody = 64 * api.MiB
	}
	if c.Wait == 0 {
		c.Wait = 10 * time.Second
	}
	if c.Drain == 0 {
		c.Drain = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	c.Dir = dir
	c.Shim.Socket = filepath.Join(dir, "shim.sock")
	if err := api.CheckEndpoint(socketIn(dir)); err != nil {
		return fmt.Errorf("choose a folder with a shorter path for the workers: %w", err)
	}
	return prepare(dir)
}

// socketIn is where the leader takes requests. Its name is no shorter than that
// of the shim's socket.
func socketIn(dir string) api.Endpoint {
	return api.Endpoint("unix:" + filepath.Join(dir, "leader.sock"))
}

// worker is a worker that runs.
type worker struct {
	cfg   Config
	door  *door
	hints bell.Bell // the leader may have died
}

// run follows until it leads, and leads.
func (w *worker) run(ctx context.Context) error {
	before, err := stops(w.cfg.Dir)
	if err != nil {
		return err
	}
	attendance, leave := context.WithCancelCause(ctx)
	attended := make(chan struct{})
	go func() {
		defer close(attended)
		if err := shim.Attend(attendance, w.cfg.Shim.Socket, w.hint); err != nil {
			leave(err)
		}
	}()
	held, err := lock(attendance, w.cfg.Dir, w.hints)
	if err != nil {
		leave(nil)
		<-attended
		if errors.Is(err, shim.ErrEnded) {
			w.cfg.Logger.Info("the instance was stopped")
			return nil
		}
		return err
	}
	defer held.Close()
	if now, err := stops(w.cfg.Dir); err != nil || now != before {
		leave(nil)
		<-attended
		return err
	}
	w.cfg.Logger.Info("this worker leads", "folder", w.cfg.Dir)
	client, err := shim.Open(ctx, w.cfg.Shim)
	leave(nil) // only now: the shim is never without us
	<-attended
	if err != nil {
		return err
	}
	defer client.Close()
	err = w.lead(ctx, client)
	if client.Final() {
		err = errors.Join(err, countStop(w.cfg.Dir, before))
	}
	return err
}

func (w *worker) hint() { w.hints.Ring() }

// lead opens the leader's socket and leads.
func (w *worker) lead(ctx context.Context, client *shim.Client) error {
	path, _ := socketIn(w.cfg.Dir).Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the last leader's socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for the other workers: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by then it may be the next leader's
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("listen for the other workers: %w", err)
	}
	err = w.cfg.Lead(ctx, &Leadership{Shim: client, Listener: l, door: w.door})
	w.door.local.Store(nil)
	return err
}
