//go:build !unix

package cpu

// Without mmap the cache lies in the Go heap, which aligns an allocation of this size.
func mapAnonymous(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapAnonymous([]byte) error { return nil }
