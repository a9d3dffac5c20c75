package main

import "syscall"

// dieWithParent makes a child end when bench does.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
