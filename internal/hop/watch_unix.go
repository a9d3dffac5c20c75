//go:build unix

package hop

import (
	"context"
	"syscall"
)

// watch ends a request's context when its client leaves. A client that sends
// more, the next request that is, is watched no longer.
func (p *peer) watch(cancel context.CancelFunc, done chan<- struct{}) {
	defer close(done)
	left := false
	_ = p.raw.Read(func(fd uintptr) bool { // ends with an error when unwatch says so: nothing is known then
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err == syscall.EAGAIN || err == syscall.EINTR {
			return false // wait until there is something to be read
		}
		left = err != nil || n == 0
		return true
	})
	if left {
		cancel()
	}
}
