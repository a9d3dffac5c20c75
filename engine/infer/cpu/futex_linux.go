package cpu

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2) on memory that processes share.
const (
	futexWait = 0
	futexWake = 1
)

// sleepUntil sleeps while *p is still, at most for d. It may return early.
func sleepUntil(p *atomic.Uint32, still uint32, d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), futexWait, uintptr(still), uintptr(unsafe.Pointer(&t)), 0, 0)
}

func wakeAll(p *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), futexWake, 1<<30, 0, 0, 0)
}
