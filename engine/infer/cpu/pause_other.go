//go:build !amd64

package cpu

// pause does nothing where no instruction for waiting loops is used.
func pause() {}
