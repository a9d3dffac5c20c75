package worker

import "syscall"

// dieWithParent has the kernel kill the process when the thread that started it ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
