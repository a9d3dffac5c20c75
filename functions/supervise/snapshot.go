package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// A start from a snapshot restores the process that an earlier start of the same runtime has left on the disk.
//
//  1. After a usual start, once no request runs, the runtime is asked the canary twice, and a snapshot is made. Meanwhile the process
//     stands still, and requests wait in it. A runtime that answers differently has no snapshot.
//  2. The next start restores a valid snapshot. It must answer the canary as before, without a second try.
//  3. If it does not, or ends, or takes longer than a usual start and a minute, the snapshot is deleted. A usual start follows at once,
//     and is not counted as a restart.

// Snapshots keeps a snapshot of a runtime's process. One goroutine at a time calls its methods.
type Snapshots interface {
	// Restore restores the process by a child that it starts with start. lines receives its output. A nil child: no snapshot for this
	// launch is worth it.
	Restore(l runtime.Launch, start func(process.Spec) (Child, error), lines func([]byte)) (Child, Saved)
	// Restored takes how long a restore took until the canary was answered, or why the snapshot must be deleted.
	Restored(took time.Duration, failed error)
	// Save makes a snapshot of the process and its descendants, which use that much memory and go on. It sets the endpoint itself.
	Save(ctx context.Context, memory api.Bytes, of Saved) error
}

// Saved describes the process of a snapshot.
type Saved struct {
	Endpoint api.Endpoint
	PID      int
	Canary   runtime.Answer
	Load     time.Duration // of the usual start
}

const (
	snapshotAfter   = 2 * time.Second        // from the start, and the pause between two looks for requests
	closeTime       = 100 * time.Millisecond // for the runtime to notice closed connections
	saveTries       = 3
	snapshotTimeout = time.Minute // of a snapshot, and how much longer than a usual start a restore may take
)

type saved struct {
	at        time.Time // when to make a snapshot; zero: never
	restoring bool      // the start under way restores one
	pid       int       // of a restored process; 0: it is not restored
	load      time.Duration
}

func (s *Supervisor) restoreRuntime(launch runtime.Launch, lines func([]byte)) bool {
	s.saved = saved{}
	if s.cfg.Snapshots == nil {
		return false
	}
	began := time.Now()
	child, of := s.cfg.Snapshots.Restore(launch, s.cfg.Start, lines)
	if child == nil {
		return false
	}
	launch.Endpoint, launch.Announce = of.Endpoint, ""
	s.proc.launched(launch)
	s.canary.answer = &of.Canary
	s.saved = saved{restoring: true, pid: of.PID, load: of.Load}
	s.awaitRuntime(child, began, nil)
	return true
}

func (o *operation) awaitRestored(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, o.saved.load+snapshotTimeout)
	defer cancel()
	if err := o.awaitStart(ctx); err != nil {
		return err
	}
	got, err := o.askCanary(ctx, "")
	if err == nil && !o.canary.Agrees(got) {
		err = fmt.Errorf("the restored model does not answer as it did: to the canary it said %s then and says %s now", *o.canary, got)
	}
	return err
}

func (s *Supervisor) startedRuntime(took time.Duration) {
	switch {
	case s.cfg.Snapshots == nil || s.proc.attached:
	case s.saved.restoring:
		s.saved.restoring = false
		s.cfg.Snapshots.Restored(took, nil)
	case s.cfg.Canary:
		s.saved.at, s.saved.load = time.Now().Add(snapshotAfter), took
	}
}

func (s *Supervisor) restoreFailed(reason error) {
	s.saved = saved{}
	s.canary.forget()
	s.cfg.Snapshots.Restored(0, reason)
	if s.proc.child != nil {
		s.endProcessWithin(0)
	}
}

func (s *Supervisor) saveSnapshot() {
	if running, _ := s.gate.Running(); running > 0 {
		s.saved.at = time.Now().Add(snapshotAfter)
		return
	}
	s.saved.at = time.Time{}
	s.beginOperation(opSnapshot)
}

func (o *operation) save(ctx context.Context) error {
	if o.canary == nil {
		o.canary = o.learn(ctx, "")
	}
	if o.canary == nil || !o.canary.Known() {
		return errors.New("the model has no constant answer to the canary")
	}
	memory, shared, err := o.child.Memory()
	for try := 1; err == nil; try++ {
		o.cfg.Closed() // a process with connections can't be saved
		select {
		case <-time.After(closeTime):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		failed := o.cfg.Snapshots.Save(ctx, memory-shared.Bytes, Saved{PID: o.child.PID(), Canary: *o.canary, Load: o.saved.load})
		if failed == nil || try == saveTries {
			return failed
		}
	}
	return err
}

// stop ends the process. criu, the parent of a restored one, ends at SIGTERM and takes it along, so that it gets its own first.
func (o *operation) stop() {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.saved.pid))
	if o.grace > 0 && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", o.child.PID())) && syscall.Kill(-o.saved.pid, syscall.SIGTERM) == nil {
		select {
		case <-o.child.Exited():
		case <-time.After(o.grace):
		}
		o.grace = 0
	}
	o.child.Stop(o.grace)
}
