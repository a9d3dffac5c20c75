//go:build !unix

package cpu

import "errors"

// The Go heap aligns an allocation of this size.
func mapAnonymous(n int) ([]byte, error) { return make([]byte, n), nil }

func mapShared(uintptr, int, bool) ([]byte, error) { return nil, errors.ErrUnsupported }

const dropsPages = false

func innerPages([]byte) []byte { return nil }

func unmap([]byte) error { return nil }

func dropPages([]byte) error { return nil }

func lock(uintptr) error { return errors.ErrUnsupported }
