//go:build unix

package cpu

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const dropsPages = true // dropPages frees anonymous memory too

func innerPages(b []byte) []byte {
	size := uintptr(os.Getpagesize())
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := int((size - begin%size) % size)
	if skip >= len(b) {
		return nil
	}
	return b[skip : skip+(len(b)-skip)/int(size)*int(size)]
}

// mapAnonymous returns zeroed memory, which takes no pages before it is used.
func mapAnonymous(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
}

func mapShared(fd uintptr, n int, writable bool) ([]byte, error) {
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	return unix.Mmap(int(fd), 0, n, prot, unix.MAP_SHARED)
}

func unmap(b []byte) error { return unix.Munmap(b) }

// The next access reads a mapped file's pages again; anonymous pages are then zero on Linux.
func dropPages(b []byte) error { return unix.Madvise(b, unix.MADV_DONTNEED) }

// lock waits for the file's lock. Closing the file unlocks it.
func lock(fd uintptr) error {
	for {
		if err := unix.Flock(int(fd), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}
