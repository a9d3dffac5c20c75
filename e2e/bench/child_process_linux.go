package main

import "syscall"

// dieWithParent makes a child end when its parent does.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
