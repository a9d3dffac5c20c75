package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// children are the processes that Start started. mu is held while one is forked,
// while any child is reaped and while strays are looked for: so the kinds never
// mix, no id that was found is another's yet, and a child that has ended stays to
// be found until the look is over, with whatever it left to us as it ended.
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
// which are of other sessions and so can't enter it.
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
			pids, err := listed()
			if err != nil {
				pids, _ = walked() // who is missed is reaped with the next one
			}
			reapStrays(pids)
		}
	}()
	return nil
}

// reapStrays reaps those of the processes that are strays and have ended.
func reapStrays(pids []int) {
	children.mu.Lock()
	defer children.mu.Unlock()
	for _, pid := range pids {
		if stray(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// lookAgain is the pause before /proc is read again after it could not be.
const lookAgain = 10 * time.Millisecond

// sweepStrays kills and reaps every stray until none is left: one that dies
// hands its own children to us.
func sweepStrays() {
	if !adopts.Load() {
		return
	}
	for {
		killed, err := killStrays()
		switch {
		case err != nil: // of files, for one, there may be none left to open
			time.Sleep(lookAgain)
		case len(killed) == 0:
			return
		}
		for _, pid := range killed {
			for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
			}
		}
		reapStrays(killed)
	}
}

// killStrays kills the strays that there are, and returns them. Where it returns
// none, there were none when it began, and so nothing that could make one:
//
//  1. It kills those in the kernel's own list of our children as long as it finds
//     new ones there. The list is read so fast that who forks and ends, again and
//     again, is caught; but it may miss one while others come and go.
//  2. Then it walks over /proc, which misses none that is there from the beginning to
//     the end of the walk. Every child is: none is reaped meanwhile.
func killStrays() (killed []int, err error) {
	children.mu.Lock()
	defer children.mu.Unlock()
	dead := map[int]bool{}
	kill := func(pids []int) (more bool) {
		for _, pid := range pids {
			if stray(pid) && !dead[pid] {
				end(pid)
				dead[pid], more = true, true
				killed = append(killed, pid)
			}
		}
		return more
	}
	for more := true; more; { // 1.
		pids, _ := listed() // not every kernel has it
		more = kill(pids)
	}
	pids, err := walked() // 2.
	kill(pids)
	return killed, err
}

// end kills a stray, with its group where that is not a child's of Start: a group
// is killed at one moment, whoever forks in it. The caller holds children.mu.
func end(pid int) {
	if group, err := unix.Getpgid(pid); err == nil && group > 1 && !children.known[group] {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// stray says whether a child of ours is one that Start did not start and that is
// not in our group; a zombie has its group still. The caller holds children.mu.
func stray(pid int) bool {
	group, err := unix.Getpgid(pid)
	return err == nil && !children.known[pid] && group != syscall.Getpgrp()
}

// listed are our children as the kernel lists them, thread by thread. It may miss
// some that are there. Not every kernel has the lists (CONFIG_PROC_CHILDREN).
func listed() (pids []int, err error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	for _, thread := range threads {
		raw, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/children")
		if gone(err) && thread.Name() != strconv.Itoa(os.Getpid()) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		for _, field := range bytes.Fields(raw) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// walked are our children as a walk over /proc finds them.
func walked() ([]int, error) {
	of, err := family()
	return of[os.Getpid()], err
}

// family maps each process to its children. It reads the whole of /proc. With an
// error it is what could be read.
func family() (map[int][]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, failed := dir.Readdirnames(-1)
	of := make(map[int][]int, len(names))
	buf := make([]byte, 512)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		switch parent, err := parentOf(name, buf); {
		case err == nil:
			of[parent] = append(of[parent], pid)
		case !gone(err):
			failed = err
		}
	}
	return of, failed
}

// descent are a process and its descendants, as far as /proc can be read.
func descent(pid int) []int {
	of, _ := family() // what can be read counts
	pids := []int{pid}
	for k := 0; k < len(pids); k++ {
		pids = append(pids, of[pids[k]]...)
	}
	return pids
}

// gone says that a file of /proc can't be read because its process has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// parentOf reads the fourth field of /proc/PID/stat: "PID (name) state parent …".
// The name may hold anything, brackets too.
func parentOf(pid string, buf []byte) (int, error) {
	f, err := os.Open("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.Read(buf)
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(buf[bytes.LastIndexByte(buf[:n], ')')+1 : n])
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%s/stat: no parent in %q", pid, buf[:n])
	}
	return strconv.Atoi(string(fields[1]))
}
