//go:build !linux

package main

import "syscall"

// dieWithParent needs Linux; elsewhere the parent stops its children itself.
func dieWithParent() *syscall.SysProcAttr { return nil }
