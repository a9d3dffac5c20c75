package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// maxLine is in bytes; a longer line is split.
const maxLine = 8 << 10

// outputGrace is how long output is read after the child is gone. Only a descendant that could not be killed still holds the pipe.
const outputGrace = 200 * time.Millisecond

// Spec describes a child to start.
type Spec struct {
	// Path is a path with a slash, or a name to be found in PATH.
	Path string
	Args []string
	// Env is the whole environment as "KEY=VALUE". Values may be secrets: this package never prints them.
	Env []string
	Dir string // the working directory; empty: ours
	// Stdin is the child's standard input; nil: empty. The caller closes its own end.
	Stdin *os.File
	// Outlives lets the child live on when we die. Else the kernel kills it (Linux only).
	Outlives bool
	// Lines receives each line of stdout and stderr, without its end, from one goroutine; it must not keep the slice. Nil: dropped.
	Lines func(line []byte)
}

// Process is a started child.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed by watch

	status string // written before exited is closed

	mu   sync.Mutex // guards dead, so that no signal is sent to a reused ID
	dead bool
}

// Start starts a child. It returns once the child runs its program, or why it can't.
func Start(spec Spec) (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = spec.Env, spec.Dir, w, w
	if spec.Stdin != nil { // a nil *os.File would be a non-nil io.Reader
		cmd.Stdin = spec.Stdin
	}
	cmd.SysProcAttr = attributes(spec.Outlives)
	err = spawn(cmd)
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	lines := make(chan struct{}) // closed by the reader of the output at its end
	go func() {
		defer close(lines)
		readLines(r, spec.Lines)
	}()
	go p.watch(r, lines)
	return p, nil
}

// Child is a started process, or one like it. If it also has [Process.CPU], a runtime that computes does not count as hanging.
type Child interface {
	PID() int
	Exited() <-chan struct{}
	Status() string
	Stop(grace time.Duration)
	Kill()
	Memory() (all api.Bytes, shared api.SharedMemory, err error)
}

// StartChild is [Start].
func StartChild(spec Spec) (Child, error) {
	p, err := Start(spec)
	if err != nil {
		return nil, err // a nil *Process would be a non-nil Child
	}
	return p, nil
}

// PID is also the ID of the child's group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed once the child, its group and its output have ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Status says how the child ended, such as "exit status 3". It is empty before [Process.Exited] is closed.
func (p *Process) Status() string {
	select {
	case <-p.exited:
		return p.status
	default:
		return ""
	}
}

// Stop sends SIGTERM to the child's group, kills it after grace, and blocks until it is gone. A grace of 0 kills at once.
func (p *Process) Stop(grace time.Duration) {
	if grace > 0 {
		p.signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.exited:
			return
		case <-timer.C:
		}
	}
	p.Kill()
	<-p.exited
}

// Kill kills the child's group and returns at once.
func (p *Process) Kill() { p.signal(syscall.SIGKILL) }

// signal signals the whole group, while its ID is ours.
func (p *Process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead {
		_ = syscall.Kill(-p.PID(), sig)
	}
}

func (p *Process) watch(output *os.File, lines <-chan struct{}) {
	err := p.reap()
	var exit *exec.ExitError
	switch {
	case err == nil:
		p.status = "exit status 0"
	case errors.As(err, &exit):
		p.status = exit.String()
	default:
		p.status = err.Error()
	}
	sweepStrays()
	_ = output.SetReadDeadline(time.Now().Add(outputGrace))
	<-lines
	_ = output.Close()
	close(p.exited)
}

func readLines(r *os.File, lines func([]byte)) {
	br := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := br.ReadSlice('\n')
		for n := len(line); n > 0 && (line[n-1] == '\n' || line[n-1] == '\r'); n-- {
			line = line[:n-1]
		}
		if lines != nil && (len(line) > 0 || err == nil) {
			lines(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// Variable returns the last value of a variable in a list of "KEY=VALUE", which a program gets, or "".
func Variable(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if value, found := strings.CutPrefix(kv, name+"="); found {
			return value
		}
	}
	return ""
}
