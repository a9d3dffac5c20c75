package process

import (
	"bytes"
	"os"
	"strconv"
)

// looks is how many looks must find nothing before nothing is believed to be there.
const looks = 3

// KillMarked kills every process that was started with mark, "KEY=VALUE", in its
// environment, and returns once none is left that may be killed. Children inherit
// an environment, so it reaches what has left every group and every parent; it
// does not reach who was started with an environment of its own. Who calls it is spared.
//
// It looks until several looks find nothing: they are no children of ours, and one
// that forks and ends while we look can be missed, with the child that it leaves.
func KillMarked(mark string) {
	for quiet := 0; quiet < looks; quiet++ {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		names, _ := dir.Readdirnames(-1) // what was read counts, also when it is not all
		dir.Close()
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() && killMarked(pid, mark) {
				quiet = -1
			}
		}
	}
}

// killMarked kills a process if it bears the mark and says whether it did. The
// process is held by a descriptor before it is looked at, so that no other one
// can have its id by then.
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

// marked says whether an environment, as the kernel shows it, holds the pair.
func marked(env []byte, pair string) bool {
	for _, kv := range bytes.Split(env, []byte{0}) {
		if string(kv) == pair {
			return true
		}
	}
	return false
}
