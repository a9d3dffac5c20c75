//go:build unix

package localhttp

import "syscall"

// Quiet reports whether an idle connection is open and has nothing to read: unsolicited bytes announce its end.
func (c *Conn) Quiet() bool {
	if c.raw == nil {
		return true
	}
	open := false
	err := c.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		open = err == syscall.EAGAIN
		return true // a poll, not a wait
	})
	return err == nil && open
}
