//go:build !linux

package ledger

import "errors"

func hostMemory() (memory, error) {
	return memory{}, errors.New("host memory: its size is only known on Linux")
}
