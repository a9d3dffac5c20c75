package main

import "syscall"

// dieWithParent makes a child end when this program does.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
