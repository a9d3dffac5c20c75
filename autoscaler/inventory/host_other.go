//go:build !linux

package inventory

import "errors"

func hostMemory() (memory, error) {
	return memory{}, errors.New("host memory: its size is only known on Linux")
}
