package process

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// looks is how many searches in a row must find nothing: a process that forks and ends during one can be missed, with its child.
const looks = 3

// KillMarked kills every other process that was started with mark, "KEY=VALUE", in its environment, and blocks until none is left that
// may be killed. Children inherit an environment, also those that left their group and parent.
func KillMarked(mark string) {
	for quiet := 0; quiet < looks; quiet++ {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		names, _ := dir.Readdirnames(-1)
		dir.Close()
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() && killMarked(pid, mark) {
				quiet = -1
			}
		}
	}
}

// killMarked opens a handle before it reads the environment, so that the ID can't have been reused.
func killMarked(pid int, mark string) bool {
	held, err := Hold(pid)
	if err != nil {
		return false
	}
	defer held.Close()
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), mark) {
		return false
	}
	return held.Kill()
}
