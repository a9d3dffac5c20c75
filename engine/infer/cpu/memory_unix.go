//go:build unix

package cpu

import "golang.org/x/sys/unix"

func mapAnonymous(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
}

func unmapAnonymous(b []byte) error { return unix.Munmap(b) }
