//go:build !linux

package main

import "syscall"

// dieWithParent needs Linux.
func dieWithParent() *syscall.SysProcAttr { return nil }
