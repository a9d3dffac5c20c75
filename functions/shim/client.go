package shim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
	"github.com/rouse-dev/rouse/internal/bell"
)

// ClientConfig configures a [Client].
type ClientConfig struct {
	// Command ends in [Args].
	Command []string
	Env     []string // the shim's; the runtime's comes with its start
	// Socket is the path where other workers of the instance join, in a folder that only this user can enter. Only the leader, which
	// holds a lock, may call Open with it. Empty: there are no others.
	Socket string
	// Lines receives the output of an adopted runtime: the last earlier lines, and all new ones.
	Lines  func([]byte)
	Logger *slog.Logger
}

// Client is the leading function's side of a shim. Its methods are safe for many goroutines. A dead shim is replaced at the next Start.
type Client struct {
	cfg ClientConfig

	mu    sync.Mutex // guards the fields below; held while a shim is started
	link  *link
	final bool // the last note says that the instance is gone
}

const waitForOld = 20 * time.Millisecond

// Open starts a shim, or joins the one at cfg.Socket. If that one's instance was stopped for good, Open first waits until it has ended.
func Open(ctx context.Context, cfg ClientConfig) (*Client, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("shim: no command line to start one")
	}
	if cfg.Lines == nil {
		cfg.Lines = func([]byte) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg}
	if err := c.connect(ctx); err != nil {
		if c.link != nil {
			_ = c.link.conn.Close() // no orderly leave: the shim is of no use, and is killed
			<-c.link.gone
		}
		return nil, err
	}
	return c, nil
}

func (c *Client) connect(ctx context.Context) error {
	for c.cfg.Socket != "" {
		l, err := join(ctx, c.cfg.Socket, role{leads: true, lines: c.cfg.Lines})
		switch {
		case err != nil && !nobody(err):
			return fmt.Errorf("shim: join at %s: %w", c.cfg.Socket, err)
		case err != nil:
			if err := c.clearUp(); err != nil {
				return err
			}
			return c.spawn(ctx)
		case !l.over():
			c.link = l
			return nil
		}
		l.leave()
		if err := bell.Sleep(ctx, waitForOld); err != nil {
			return err
		}
	}
	return c.spawn(ctx)
}

func (c *Client) markFile() string { return c.cfg.Socket + ".mark" }

// clearUp removes the remains of a shim whose death nobody saw: its socket, and its runtime's processes.
func (c *Client) clearUp() error {
	mark, err := os.ReadFile(c.markFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("shim: read the last one's mark: %w", err)
	}
	if rest, ours := strings.CutPrefix(string(mark), markKey); ours && rest != "" {
		process.KillMarked(string(mark))
	}
	if err := os.Remove(c.cfg.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("shim: remove an old socket: %w", err)
	}
	return nil
}

const markKey = "ROUSE_SHIM="

func (c *Client) newMark() (string, error) {
	mark := markKey + rand.Text()
	if c.cfg.Socket == "" {
		return mark, nil
	}
	if err := os.WriteFile(c.markFile(), []byte(mark), 0o600); err != nil {
		return "", fmt.Errorf("shim: note the mark: %w", err)
	}
	return mark, nil
}

// spawn returns once others can join.
func (c *Client) spawn(ctx context.Context) error {
	mark, err := c.newMark()
	if err != nil {
		return err
	}
	ours, theirs, err := pair()
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	proc, err := process.Start(process.Spec{
		Path: c.cfg.Command[0], Args: c.cfg.Command[1:], Env: c.cfg.Env, Stdin: theirs, Outlives: true,
		Lines: func(line []byte) { c.cfg.Logger.Warn("shim: " + string(line)) },
	})
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return fmt.Errorf("shim: %w", err)
	}
	l := newLink(ours, role{leads: true, lines: c.cfg.Lines})
	l.proc, l.mark = proc, mark
	go l.hear()
	answers, err := l.call(message{Call: callJoin, Lead: true, Mark: mark, Listen: c.cfg.Socket}, nil)
	c.link = l
	if err != nil || c.cfg.Socket == "" {
		return err
	}
	_, err = l.await(ctx, answers)
	return err
}

func pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := socketpair()
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	own, theirs := os.NewFile(uintptr(fds[0]), "shim"), os.NewFile(uintptr(fds[1]), "function")
	defer own.Close()
	ours, err = net.FileConn(own)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return ours, theirs, nil
}

// live replaces a dead shim, once nothing of it is left.
func (c *Client) live() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.link.broken:
		<-c.link.gone
		if err := c.connect(context.Background()); err != nil {
			return nil, err
		}
	default:
	}
	return c.link, nil
}

// Start fails as [process.Start] does.
func (c *Client) Start(s process.Spec) (supervise.Child, error) {
	child, err := c.start(s)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	return child, nil
}

func (c *Client) start(s process.Spec) (*Child, error) {
	// Resolve here: the shim has no PATH, and may have another working directory.
	path, err := exec.LookPath(s.Path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil && s.Dir == "" {
		s.Dir, err = os.Getwd()
	}
	if err != nil {
		return nil, err
	}
	if s.Env == nil {
		s.Env = os.Environ()
	}
	l, err := c.live()
	if err != nil {
		return nil, err
	}
	child := newChild(l, s.Lines)
	answers, err := l.call(message{Call: callStart, Spec: &spec{Path: path, Args: s.Args, Env: s.Env, Dir: s.Dir}}, child)
	if err == nil {
		_, err = l.await(context.Background(), answers)
	}
	return child, err
}

// Adopt returns what another leader has left: its runtime, if one runs, and its note; false: nothing.
func (c *Client) Adopt() (supervise.Child, runtime.Launch, supervise.Note, bool) {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	child, raw := l.inherited()
	var n supervise.Note
	found := len(raw) > 0 && json.Unmarshal(raw, &n) == nil
	if child != nil && n.Endpoint == "" { // its leader died just after the start: its endpoint is unknown
		child.Stop(0)
		child = nil
	}
	if child == nil { // a nil *Child would be a non-nil interface
		return nil, n.Launch(), n, found
	}
	return child, n.Launch(), n, found
}

func (c *Client) Save(n supervise.Note) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.final = n.State == api.Gone
	if c.cfg.Socket == "" {
		return
	}
	raw, err := json.Marshal(n)
	if err == nil {
		err = c.link.send(message{Call: callNote, Note: raw})
	}
	if err != nil {
		c.cfg.Logger.Debug("a note could not be left: the shim has gone", "error", err)
	}
}

func (c *Client) Peers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.link.peers.Load())
}

// Final reports whether the last note says that the instance is gone for good.
func (c *Client) Final() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.final
}

const closeTime = 5 * time.Second

// Close leaves the shim, which ends, with the runtime, if no other worker is connected. If [Client.Final], the other workers are told to
// end.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.final && c.cfg.Socket != "" {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_, _ = c.link.ask(ctx, message{Call: callEnd})
	}
	alone := c.link.peers.Load() == 0
	c.link.leave()
	if proc := c.link.proc; proc != nil && alone {
		timer := time.NewTimer(closeTime)
		defer timer.Stop()
		select {
		case <-proc.Exited():
		case <-timer.C: // another worker has just joined it
		}
	}
}

// Child is the leader's handle of a runtime below a shim, as a [process.Child].
type Child struct {
	link  *link
	lines func([]byte)
	pid   int // written before it is shared

	once   sync.Once
	exited chan struct{}
	status string // written before exited is closed
}

func newChild(l *link, lines func([]byte)) *Child {
	return &Child{link: l, lines: lines, exited: make(chan struct{})}
}

func (c *Child) end(status string) {
	c.once.Do(func() {
		c.status = status
		close(c.exited)
	})
}

func (c *Child) PID() int { return c.pid }

func (c *Child) Exited() <-chan struct{} { return c.exited }

func (c *Child) Status() string {
	select {
	case <-c.exited:
		return c.status
	default:
		return ""
	}
}

func (c *Child) Stop(grace time.Duration) {
	_ = c.link.send(message{Call: callStop, PID: c.pid, Grace: grace})
	<-c.exited
}

func (c *Child) Kill() { _ = c.link.send(message{Call: callKill, PID: c.pid}) }

const askTime = 30 * time.Second

func (c *Child) Memory() (all api.Bytes, shared api.SharedMemory, err error) {
	m, err := c.ask(callMemory)
	if m.Shared != nil {
		shared = *m.Shared
	}
	return api.Bytes(m.Bytes), shared, err
}

func (c *Child) CPU() (time.Duration, error) {
	m, err := c.ask(callCPU)
	return m.Time, err
}

func (c *Child) ask(call string) (message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	return c.link.ask(ctx, message{Call: call, PID: c.pid})
}
