package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// populate reads the pages of a mapped file into memory and maps them. supported is false
// where the kernel is too old for that (before 5.14). An error says that a page could not
// be read.
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

// wholePages widens b to the pages that it lies on.
func wholePages(b []byte) []byte {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	before := p % uintptr(unix.Getpagesize())
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -int(before))), len(b)+int(before))
}

// largePages asks for few, large pages.
func largePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) } // a kernel without them serves small ones
