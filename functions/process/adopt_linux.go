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
// searched: known children and strays are never confused, and no ID is reused during a search.
var children = struct {
	mu    sync.Mutex
	known map[int]bool
}{known: map[int]bool{}}

// adopts says that Adopt was called: every unknown child is a stray.
var adopts atomic.Bool

// Adopt makes this process a subreaper: the parent of every descendant that loses its own. From now on every child that [Start] did not
// start is a stray, which is killed when a child ends, and reaped when it ends by itself. Children of os/exec must stay in our own
// process group, which strays, of other sessions, can't enter.
func Adopt() error {
	if adopts.Swap(true) {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		adopts.Store(false)
		return fmt.Errorf("become a subreaper: %w", err)
	}
	ended := make(chan os.Signal, 1) // from the Go runtime; one reap handles all ended processes
	signal.Notify(ended, syscall.SIGCHLD)
	go func() { // for the life of the process
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
		case err != nil:
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

// killStrays kills the present strays, and returns them. If it returns none, there were none when it began:
//
//  1. It kills the children in the kernel's own list until it finds no new ones. That is fast enough for processes that fork and end again
//     and again, but may miss one.
//  2. Then it walks over /proc, which finds every process that exists during the whole walk, as every child does.
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
		pids, _ := listed()
		more = kill(pids)
	}
	pids, err := walked() // 2.
	kill(pids)
	return killed, err
}

// end kills a stray with its group, unless that belongs to a child of Start: a signal to the group is atomic, even if a member forks. The
// caller holds children.mu.
func end(pid int) {
	if group, err := unix.Getpgid(pid); err == nil && group > 1 && !children.known[group] {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// stray reports whether a child of ours was not started by Start and is not in our group. The caller holds children.mu.
func stray(pid int) bool {
	group, err := unix.Getpgid(pid)
	return err == nil && !children.known[pid] && group != syscall.Getpgrp()
}

// listed returns our children from the kernel's lists, one per thread, and may miss some. Not every kernel has them
// (CONFIG_PROC_CHILDREN).
func listed() (pids []int, err error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	for _, thread := range threads {
		raw, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/children")
		if gone(err) && thread.Name() != strconv.Itoa(os.Getpid()) {
			continue
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

func walked() ([]int, error) {
	of, err := family()
	return of[os.Getpid()], err
}

// family maps each process to its children. With an error, it returns what it could read.
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

func descent(pid int) []int {
	of, _ := family()
	pids := []int{pid}
	for k := 0; k < len(pids); k++ {
		pids = append(pids, of[pids[k]]...)
	}
	return pids
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// statOf returns the fields of /proc/PID/stat, "PID (name) state parent …", behind the name, which may hold parentheses.
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
