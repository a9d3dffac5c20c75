//go:build !unix

package cpu

import "errors"

// Without mmap memory lies in the Go heap, which aligns an allocation of this size, and
// packed matrices are not kept in files.
func mapAnonymous(n int) ([]byte, error) { return make([]byte, n), nil }

func mapShared(uintptr, int, bool) ([]byte, error) { return nil, errors.ErrUnsupported }

// dropsPages is false: the cache can't be kept in parts, and so it is not kept.
const dropsPages = false

func innerPages([]byte) []byte { return nil }

func unmap([]byte) error { return nil }

func dropPages([]byte) error { return nil }

func lock(uintptr) error { return errors.ErrUnsupported }
