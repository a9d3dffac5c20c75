package snapshot

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/functions/supervise"
)

// restored is a criu that has restored a process, or does so. The kernel kills the process when criu ends.
type restored struct {
	supervise.Child
	pid int // of the restored process
}

// Stop implements [supervise.Child]: criu would end at SIGTERM without passing it on.
func (r restored) Stop(grace time.Duration) {
	if grace > 0 && parent(r.pid) == r.PID() && syscall.Kill(-r.pid, syscall.SIGTERM) == nil {
		select {
		case <-r.Exited():
			return
		case <-time.After(grace):
		}
	}
	r.Child.Stop(0)
}

// CPU is like process.Process's.
func (r restored) CPU() (time.Duration, error) {
	if c, ok := r.Child.(interface{ CPU() (time.Duration, error) }); ok {
		return c.CPU()
	}
	return 0, errors.ErrUnsupported
}

// parent returns the parent of a process; 0: it is not known.
func parent(pid int) int {
	raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}
