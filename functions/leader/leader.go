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
	"github.com/rouse-dev/rouse/internal/inbound"
)

// Config configures a worker.
type Config struct {
	Dir string // the folder that the workers share
	// Runs identifies what the worker runs: a name, a space, and a digest that must be equal in all workers of the folder.
	Runs string
	// Listener is the worker's own listener. Run closes it.
	Listener net.Listener
	// Server has the timeouts and protocols of the worker's server. Run sets its Handler.
	Server *http.Server
	// Shim says how to start a shim, and receives an adopted runtime's output; Run sets Socket.
	Shim shim.ClientConfig
	// Lead is called once, when the worker leads, and leads until it returns. When ctx ends it must end soon; requests that it drains are
	// still served.
	Lead func(ctx context.Context, l *Leadership) error
	// MaxBody bounds the body of a request that is passed on; 0: 64 MiB.
	MaxBody api.Bytes
	// Wait is how long a request waits for a leader; 0: 10 s.
	Wait time.Duration
	// Drain is how long requests may finish when a follower ends; 0: 30 s.
	Drain  time.Duration
	Kill   <-chan struct{}
	Logger *slog.Logger
}

// Leadership holds a leader's resources.
type Leadership struct {
	// Shim provides Start, Adopt and Save of a supervise.Config. Its Peers are the workers that could take over.
	Shim *shim.Client
	// Listener receives the other workers' requests. Its server closes it.
	Listener net.Listener

	door *door
}

// Serve makes the worker's own door call the handler directly. Until then it sends requests to Listener, as the other workers do.
func (l *Leadership) Serve(h http.Handler) { l.door.local.Store(&h) }

// Run runs a worker. It returns nil once ctx has ended or the instance was stopped. After an error another worker can take over.
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
	server := inbound.NewServer(cfg.Server)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(inbound.Bound(cfg.Server, cfg.Listener, cfg.Logger))
		cancel() // a worker without its door is of no use
	}()
	err = w.run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = nil
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

func (w *worker) shutdown(server *inbound.Server) {
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
		_ = server.Close()
	}
}

func (c *Config) defaults() error {
	if c.Dir == "" || c.Lead == nil || c.Server == nil {
		return errors.New("Config needs Dir, Lead and Server")
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

// socketIn's name is at least as long as the shim socket's.
func socketIn(dir string) api.Endpoint {
	return api.Endpoint("unix:" + filepath.Join(dir, "leader.sock"))
}

type worker struct {
	cfg   Config
	door  *door
	hints bell.Bell // the leader may have died
}

func (w *worker) run(ctx context.Context) error {
	before, err := stops(w.cfg.Dir)
	if err != nil {
		return err
	}
	attendance, leave := context.WithCancelCause(ctx)
	attended := make(chan struct{})
	go func() {
		defer close(attended)
		if err := shim.Attend(attendance, w.cfg.Shim.Socket, w.hints.Ring); err != nil {
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
	w.cfg.Logger.Info("this worker is now the leader", "folder", w.cfg.Dir)
	client, err := shim.Open(ctx, w.cfg.Shim)
	leave(nil) // only now, so that the shim always has a connection of ours
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

func (w *worker) lead(ctx context.Context, client *shim.Client) error {
	path, _ := socketIn(w.cfg.Dir).Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the last leader's socket: %w", err)
	}
	l, err := shim.Listen(path)
	if err != nil {
		return err
	}
	defer l.Close()
	err = w.cfg.Lead(ctx, &Leadership{Shim: client, Listener: l, door: w.door})
	w.door.local.Store(nil)
	return err
}
