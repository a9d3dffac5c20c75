//go:build !amd64

package cpu

func pause() {}
