package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Suspender has NVIDIA's driver take a process and its descendants off their GPUs, and back. The contents of their GPU memory are in host
// memory meanwhile. Their threads run on, but calls of CUDA block.
type Suspender struct {
	Program string
	// Library is the LD_LIBRARY_PATH for libcuda; empty: the system's own.
	Library string
}

var (
	// ErrNever means that another try would fail too.
	ErrNever = errors.New("this can't be suspended")
	// ErrLost means that the processes are of no use any more and must be ended.
	ErrLost = errors.New("the driver has lost it")
)

// States of a process that uses CUDA, as in the CUDA driver API.
const (
	cudaRunning = iota
	cudaLocked
	cudaCheckpointed
	cudaFailed
)

const (
	firstSuspending = 12080   // the version of CUDA whose driver (570) suspends
	firstMoving     = 13000   // the one whose driver (580) restores onto other GPUs
	lockTime        = "10000" // milliseconds that its last work may take
	undoTime        = 20 * time.Second
)

type refusal struct {
	call string
	code int
}

var temporary = map[int]string{1: "the process has ended", 2: "out of memory", 600: "it still computes"}

func (r *refusal) Error() string {
	return fmt.Sprintf("CUDA error %d in %s: %s", r.code, r.call, cmp.Or(temporary[r.code], "the driver can't do this"))
}

func (r *refusal) Is(err error) bool { return err == ErrNever && temporary[r.code] == "" }

// Suspend takes all or none: after an error they are as before, or [ErrLost]. moves reports whether the driver can restore them onto
// other GPUs.
func (s Suspender) Suspend(ctx context.Context, pid int) (moves bool, err error) {
	d, err := s.open(ctx)
	if err != nil {
		return false, err
	}
	err = d.suspend(ctx, pid)
	d.close(ctx)
	if err == nil {
		return d.version >= firstMoving, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if undo := s.Restore(ctx, pid, nil, nil); undo != nil {
		err = fmt.Errorf("%w, and then %w: %w", err, ErrLost, undo)
	}
	return false, err
}

func (d *driver) suspend(ctx context.Context, pid int) error {
	suspended := 0
	for { // for those that have begun to use CUDA meanwhile
		pids := descent(pid)
		locked, err := d.each(ctx, pids, cudaRunning, "Lock", lockTime)
		if err == nil && locked > 0 {
			_, err = d.each(ctx, pids, cudaLocked, "Checkpoint")
		}
		if suspended += locked; err == nil && suspended == 0 {
			err = fmt.Errorf("%w: none of its processes uses CUDA", ErrNever)
		}
		if err != nil || locked == 0 {
			return err
		}
	}
}

// Restore brings back those that are suspended, or were left in a failed suspension. Each GPU of old becomes the one of now in its place;
// nil: all stay. A failure may leave some suspended.
func (s Suspender) Restore(ctx context.Context, pid int, old, now []api.DeviceID) error {
	d, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	var pairs []string
	for k := range now {
		pairs = append(pairs, string(old[k]+"="+now[k]))
	}
	pids := descent(pid)
	if _, err = d.each(ctx, pids, cudaCheckpointed, "Restore", pairs...); err == nil {
		_, err = d.each(ctx, pids, cudaLocked, "Unlock")
	}
	return err
}

type driver struct {
	process *Process
	calls   *os.File
	answers chan string // room for one: it is asked one thing at a time
	message string      // other output; read after its end
	version int
}

func (s Suspender) open(ctx context.Context) (*driver, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Program, err)
	}
	defer theirs.Close()
	d := &driver{calls: ours, answers: make(chan string, 1)}
	d.process, err = Start(Spec{Path: s.Program, Env: []string{"LD_LIBRARY_PATH=" + s.Library}, Stdin: theirs, Lines: func(line []byte) {
		if !bytes.HasPrefix(line, []byte("= ")) && !bytes.HasPrefix(line, []byte("! ")) {
			d.message = string(line)
			return
		}
		select {
		case d.answers <- string(line):
		default:
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNever, errors.Join(err, ours.Close()))
	}
	if d.version, err = d.answer(ctx, "Get the version"); err == nil && d.version < firstSuspending {
		err = fmt.Errorf("%w: the driver is too old, want version 570 or newer", ErrNever)
	}
	if err != nil {
		d.close(ctx)
	}
	return d, err
}

// close does not wait long for one that hangs in the driver.
func (d *driver) close(ctx context.Context) {
	_ = d.calls.Close()
	select {
	case <-d.process.Exited():
		return
	case <-ctx.Done():
	}
	d.process.Kill()
	select {
	case <-d.process.Exited():
	case <-time.After(outputGrace):
	}
}

func (d *driver) answer(ctx context.Context, call string) (n int, err error) {
	select {
	case line := <-d.answers:
		if n, err = strconv.Atoi(line[2:]); err == nil && line[0] == '!' {
			err = &refusal{call, n}
		}
		return n, err
	case <-d.process.Exited():
		err = fmt.Errorf("%s: %s: %s", call, d.process.Status(), d.message)
		if d.message != "" {
			err = fmt.Errorf("%w: %w", ErrNever, err)
		}
		return 0, err
	case <-ctx.Done():
		return 0, fmt.Errorf("%s: %w", call, context.Cause(ctx))
	}
}

func (d *driver) ask(ctx context.Context, call string, pid int, words ...string) (int, error) {
	call += " " + strconv.Itoa(pid)
	_, _ = fmt.Fprintln(d.calls, strings.Join(append([]string{call}, words...), " ")) // answer sees that it has ended
	return d.answer(ctx, call)
}

func (d *driver) each(ctx context.Context, pids []int, state int, call string, words ...string) (n int, err error) {
	for _, p := range pids {
		now, err := d.ask(ctx, "GetState", p)
		var refused *refusal
		switch {
		case errors.As(err, &refused): // it does not use CUDA, or has ended
		case err != nil:
			return n, err
		case now >= cudaFailed:
			return n, fmt.Errorf("process %d is in state %d: %w", p, now, ErrLost)
		case now == state:
			if _, err := d.ask(ctx, call, p, words...); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}
