package process

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// children are the processes that Start started. mu is held while one is
// forked and while strays are told from children, so that the two never mix.
var children = struct {
	mu    sync.Mutex
	known map[int]bool
}{known: map[int]bool{}}

// adopts says that Adopt was called: every child that is not known is a stray.
var adopts atomic.Bool

// Adopt makes this process the parent of every descendant that loses its own
// (a subreaper), and from now on every child that [Start] did not start is a
// stray: it is killed when a child ends, and reaped when it ends by itself.
// Children that are started in another way, by os/exec, must stay in our own
// process group, which is os/exec's default: by that they are told from strays,
// whose group is that of a child of Start, or one of their own.
func Adopt() error {
	if adopts.Swap(true) {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		adopts.Store(false)
		return fmt.Errorf("become a subreaper: %w", err)
	}
	ended := make(chan os.Signal, 1) // sent to by the runtime; one place: a reap sees all that ended
	signal.Notify(ended, syscall.SIGCHLD)
	go func() { // for as long as the process lives, see the package comment
		for range ended {
			for _, pid := range strays() {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
	}()
	return nil
}

// sweepStrays kills and reaps every stray until none is left: one that dies
// hands its own children to us.
func sweepStrays() {
	if !adopts.Load() {
		return
	}
	for {
		pids := strays()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for _, pid := range pids {
			for {
				if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
					break // reaped here, or by the goroutine of Adopt
				}
			}
		}
	}
}

// strays are our children that Start did not start and that have left our group.
func strays() []int {
	children.mu.Lock()
	defer children.mu.Unlock()
	own := syscall.Getpgrp()
	var pids []int
	for _, k := range family()[os.Getpid()] {
		if !children.known[k.pid] && k.group != own {
			pids = append(pids, k.pid)
		}
	}
	return pids
}

// kin is a process as its parent sees it.
type kin struct{ pid, group int }

// family maps each process to its children. It reads the whole of /proc:
// /proc/PID/task/TID/children is shorter, but not every kernel has it.
func family() map[int][]kin {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what was read counts, also when it is not all
	of := make(map[int][]kin, len(names))
	buf := make([]byte, 512)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if parent, group, ok := placeOf(name, buf); ok {
				of[parent] = append(of[parent], kin{pid, group})
			}
		}
	}
	return of
}

// placeOf reads the fourth and fifth field of /proc/PID/stat: "PID (name) state
// parent group …". The name may hold anything, brackets too.
func placeOf(pid string, buf []byte) (parent, group int, ok bool) {
	f, err := os.Open("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, false // it has ended
	}
	defer f.Close()
	n, _ := f.Read(buf) // what was read counts
	fields := bytes.Fields(buf[bytes.LastIndexByte(buf[:n], ')')+1 : n])
	if len(fields) < 3 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return parent, group, err == nil && err2 == nil
}
