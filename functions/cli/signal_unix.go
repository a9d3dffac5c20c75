//go:build unix

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopSignal parses a signal in the forms that images use: SIGQUIT, QUIT or 3.
func stopSignal(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if s := unix.SignalNum(name); s != 0 {
		return s, nil
	}
	if n, found := strings.CutPrefix(name, "SIGRTMIN+"); found {
		if k, err := strconv.Atoi(n); err == nil && k >= 0 && k < 31 {
			return syscall.Signal(34 + k), nil
		}
	}
	return 0, fmt.Errorf("--stop-signal %.40q: want the name or number of a signal, such as SIGQUIT", text)
}
