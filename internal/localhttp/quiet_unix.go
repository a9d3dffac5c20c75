//go:build unix

package localhttp

import "syscall"

// quiet says whether an idle connection is open and has nothing to be read: what
// comes unasked is the other side's farewell.
func (c *conn) quiet() bool {
	if c.raw == nil {
		return true
	}
	open := false
	err := c.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		open = err == syscall.EAGAIN
		return true // whatever it says: this is a poll, not a wait
	})
	return err == nil && open
}
