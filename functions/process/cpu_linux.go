package process

import (
	"fmt"
	"strconv"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat (USER_HZ), whatever the kernel's tick.
const clockTick = time.Second / 100

// CPU returns the processor time that the child and its living descendants have used; it can shrink when one ends.
func (p *Process) CPU() (time.Duration, error) {
	var total time.Duration
	found := false
	buf := make([]byte, 1024)
	for _, pid := range descent(p.PID()) {
		if used, ok := timesOf(pid, buf); ok {
			found = true
			total += used
		}
	}
	if !found {
		return 0, fmt.Errorf("measure the processor time of process %d: it is gone", p.PID())
	}
	return total, nil
}

func timesOf(pid int, buf []byte) (time.Duration, bool) {
	fields, err := statOf(strconv.Itoa(pid), buf)
	if err != nil {
		return 0, false
	}
	user, err := strconv.ParseInt(string(fields[11]), 10, 64)
	kernel, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+kernel) * clockTick, err == nil && err2 == nil
}
