package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// populate reads and maps the pages of a mapped file. It needs Linux 5.14.
func populate(b []byte) (supported bool, err error) {
	for {
		err := unix.Madvise(wholePages(b), unix.MADV_POPULATE_READ)
		switch err {
		case unix.EINTR, unix.EAGAIN:
			continue
		case unix.EINVAL, unix.ENOSYS:
			return false, nil
		}
		return true, err
	}
}

func wholePages(b []byte) []byte {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	before := p % uintptr(unix.Getpagesize())
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -int(before))), len(b)+int(before))
}

func largePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) } // a kernel without them serves small ones
