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

// children are the processes that Start started. mu is held while one is forked, while any child is reaped, and while strays are
// searched. So known children and strays are never confused, and no ID is reused during a search. A child that ends stays a zombie until
// the search is over.
var children = struct {
	mu    sync.Mutex
	known map[int]bool
}{known: map[int]bool{}}

// adopts says that Adopt was called: every unknown child is a stray.
var adopts atomic.Bool

// Adopt makes this process a subreaper: the parent of every descendant that loses its own parent. From now on every child that [Start]
// did not start is a stray. Strays are killed when a child ends, and reaped when they end by themselves. Children of os/exec must stay
// in our own process group, which is its default. That distinguishes them from strays, which are of other sessions and so can't enter
// the group.
func Adopt() error {
	if adopts.Swap(true) {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		adopts.Store(false)
		return fmt.Errorf("become a subreaper: %w", err)
	}
	ended := make(chan os.Signal, 1) // sent to by the Go runtime; room for one, since one reap handles all ended processes
	signal.Notify(ended, syscall.SIGCHLD)
	go func() { // for the life of the process, see the package comment
		for range ended {
			pids, err := listed()
			if err != nil {
				pids, _ = walked() // a missed one is reaped with the next
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

const lookAgain = 10 * time.Millisecond

// sweepStrays kills and reaps strays until none is left: the children of a killed one become ours.
func sweepStrays() {
	if !adopts.Load() {
		return
	}
	for {
		killed, err := killStrays()
		switch {
		case err != nil: // for example, no file descriptor may be left
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

// killStrays kills the present strays, and returns them. If it returns none, there
// were none when it began, and so no process that could create one:
//
//  1. It kills the children in the kernel's own list until it finds no new ones. The
//     list is read fast enough to catch processes that fork and end again and again.
//     But it may miss one while others come and go.
//  2. Then it walks over /proc, which finds every process that exists during the whole
//     walk. Every child does: none is reaped meanwhile.
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

// end kills a stray together with its group, unless that belongs to a child of Start: a signal to the group is atomic, even if a member
// forks. The caller holds children.mu.
func end(pid int) {
	if group, err := unix.Getpgid(pid); err == nil && group > 1 && !children.known[group] {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// stray reports whether a child of ours was not started by Start and is not in our group; a zombie still has its group. The caller holds
// children.mu.
func stray(pid int) bool {
	group, err := unix.Getpgid(pid)
	return err == nil && !children.known[pid] && group != syscall.Getpgrp()
}

// listed returns our children from the kernel's lists, one per thread. It may miss some. Not every kernel has the lists
// (CONFIG_PROC_CHILDREN).
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

// walked returns our children, found by a walk over /proc.
func walked() ([]int, error) {
	of, err := family()
	return of[os.Getpid()], err
}

// family maps each process to its children. It reads all of /proc. With an error, it returns the part that it could read.
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
		fields, err := statOf(name, buf)
		parent := 0
		if err == nil {
			parent, err = strconv.Atoi(string(fields[1]))
		}
		switch {
		case err == nil:
			of[parent] = append(of[parent], pid)
		case !gone(err):
			failed = err
		}
	}
	return of, failed
}

// descent returns a process and its descendants, as far as /proc is readable.
func descent(pid int) []int {
	of, _ := family() // a partial result suffices
	pids := []int{pid}
	for k := 0; k < len(pids); k++ {
		pids = append(pids, of[pids[k]]...)
	}
	return pids
}

// gone reports whether a file of /proc can't be read because its process has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// statOf returns the fields of /proc/PID/stat, "PID (name) state parent …", behind the name, which may hold anything, even parentheses.
func statOf(pid string, buf []byte) ([][]byte, error) {
	f, err := os.Open("/proc/" + pid + "/stat")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Read(buf)
	fields := bytes.Fields(buf[bytes.LastIndexByte(buf[:n], ')')+1 : n])
	if err == nil && len(fields) < 13 {
		err = fmt.Errorf("/proc/%s/stat: too few fields in %q", pid, buf[:n])
	}
	return fields, err
}
