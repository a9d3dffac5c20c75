package process

import (
	"bytes"
	"os"
	"strconv"
)

// looks is how many searches in a row must find nothing.
const looks = 3

// KillMarked kills every process that was started with mark, "KEY=VALUE", in its environment, except the caller, and blocks until none
// is left that may be killed. Children inherit an environment, so it reaches processes that left their group and parent, but not one
// that was started with another environment.
//
// It searches until several searches find nothing. These are no children of ours, so a process that forks and ends during a search can
// be missed, with its child.
func KillMarked(mark string) {
	for quiet := 0; quiet < looks; quiet++ {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		names, _ := dir.Readdirnames(-1) // a partial list suffices
		dir.Close()
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() && killMarked(pid, mark) {
				quiet = -1
			}
		}
	}
}

// killMarked kills a process if it bears the mark, and reports whether it did. It opens a handle before it reads the environment, so
// that the ID can't have been reused.
func killMarked(pid int, mark string) bool {
	held, err := Hold(pid)
	if err != nil {
		return false
	}
	defer held.Close()
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || !marked(env, mark) {
		return false
	}
	return held.Kill()
}

// marked reports whether an environment, in the kernel's format, holds the pair.
func marked(env []byte, pair string) bool {
	for _, kv := range bytes.Split(env, []byte{0}) {
		if string(kv) == pair {
			return true
		}
	}
	return false
}
