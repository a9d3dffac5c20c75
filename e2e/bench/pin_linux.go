package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin puts every thread of the processes, and of this one, on one core until the
// function that it returns is called.
func pin(pids ...int) (undo func(), err error) {
	pids = append(pids, os.Getpid())
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("read the affinity: %w", err)
	}
	for i := range 1024 {
		if all.IsSet(i) {
			one.Set(i) // the last one: interrupts are mostly served by the first
		}
		if one.Count() > 1 {
			one.Zero()
			one.Set(i)
		}
	}
	return func() { _ = place(all, pids) }, place(one, pids) // what can't be undone has ended
}

// place sets the affinity of all threads, twice: a thread may be made meanwhile.
func place(set unix.CPUSet, pids []int) error {
	var failed error
	for range 2 {
		for _, pid := range pids {
			tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			failed = errors.Join(failed, err)
			for _, t := range tasks {
				id, err := strconv.Atoi(t.Name())
				if err == nil {
					err = unix.SchedSetaffinity(id, &set)
				}
				if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
					failed = errors.Join(failed, err)
				}
			}
		}
	}
	return failed
}
