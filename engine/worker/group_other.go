//go:build !linux

package worker

import (
	"fmt"
	"os"
)

func sharedMemory() (*os.File, error) {
	f, err := os.CreateTemp("", "rouse-ranks-")
	if err != nil {
		return nil, fmt.Errorf("make memory that ranks share: %w", err)
	}
	return f, os.Remove(f.Name())
}
