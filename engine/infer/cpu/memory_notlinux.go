//go:build !linux

package cpu

func populate([]byte) (supported bool, err error) { return false, nil }

func largePages([]byte) {}
