//go:build unix

package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process configures a worker's process.
type Process struct {
	// Command is a program and its arguments; nil: this program as "engine worker".
	Command []string
	// Env is the environment; nil: this process's.
	Env []string
	// Files become file descriptors from 4 on.
	Files []*os.File
	// Log gets the standard error, line by line; it may be nil.
	Log *slog.Logger
}

// Launch starts the process. It ends with the connection, with this process, or by Kill.
func (p Process) Launch(ctx context.Context) (Running, error) {
	if len(p.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		p.Command = []string{self, "engine", "worker"}
	}
	here, there, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer there.Close()
	words, pipe, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe: %w", err), here.Close())
	}
	defer pipe.Close()
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Env, cmd.Stderr = p.Env, pipe
	cmd.ExtraFiles = append([]*os.File{there}, p.Files...)
	cmd.SysProcAttr = dieWithParent()
	r := &process{Conn: NewConn(here), cmd: cmd, done: make(chan struct{})}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.Command[0], err), here.Close(), words.Close())
	}
	go p.listen(cmd.Process.Pid, words)
	return r, nil
}

func socketPair() (here net.Conn, there *os.File, err error) {
	syscall.ForkLock.RLock() // or a process started meanwhile inherits both and keeps the connection open
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	there = os.NewFile(uintptr(fds[1]), "worker")
	mine := os.NewFile(uintptr(fds[0]), "engine")
	defer mine.Close()
	here, err = net.FileConn(mine)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make a socket pair: %w", err), there.Close())
	}
	return here, there, nil
}

func (p Process) listen(pid int, words *os.File) {
	defer words.Close()
	if p.Log == nil {
		_, _ = io.Copy(io.Discard, words)
		return
	}
	lines := bufio.NewScanner(words)
	for lines.Scan() {
		p.Log.Info("worker output", "pid", pid, "line", lines.Text())
	}
	_, _ = io.Copy(io.Discard, words) // after a long line
}

type process struct {
	Conn
	cmd  *exec.Cmd
	done chan struct{} // closed with err set
	err  error
	once sync.Once
}

// start uses a thread that lives as long as the process: Linux takes that thread's end for the parent's death.
func (r *process) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err == nil {
			r.err = r.cmd.Wait()
			close(r.done)
		}
	}()
	return <-started
}

func (r *process) Kill() {
	r.once.Do(func() {
		r.Close()
		_ = r.cmd.Process.Kill()
	})
}

func (r *process) Wait() error {
	<-r.done
	return r.err
}

func (r *process) PIDs() []int { return []int{r.cmd.Process.Pid} }

// Main serves the connection in file descriptor 3 until it ends. It ignores signals for the terminal's process group,
// which are the engine's.
func Main(ctx context.Context, build Builder) error {
	signal.Ignore(os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	f := os.NewFile(3, "engine")
	conn, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("file descriptor 3 is no connection to an engine, which starts this command by itself: %w", err)
	}
	f.Close()
	return Serve(ctx, NewConn(conn), build)
}
