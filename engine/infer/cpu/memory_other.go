//go:build !unix

package cpu

// Without mmap the cache lies in the Go heap, as float32 words for their alignment.
func mapAnonymous(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapAnonymous([]byte) error { return nil }
