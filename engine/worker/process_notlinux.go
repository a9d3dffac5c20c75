//go:build unix && !linux

package worker

import "syscall"

// dieWithParent does nothing: the process ends when its connection does.
func dieWithParent() *syscall.SysProcAttr { return nil }
