//go:build !linux

package main

import "syscall"

// dieWithParent needs Linux; elsewhere children are stopped one by one.
func dieWithParent() *syscall.SysProcAttr { return nil }
