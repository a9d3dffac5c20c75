//go:build !unix

package cli

import (
	"fmt"
	"syscall"
)

func stopSignal(text string) (syscall.Signal, error) {
	return 0, fmt.Errorf("--stop-signal %.40q: this system has no such signals", text)
}
