// Command pause is the first process of every pod: it holds the pod's namespaces.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for { // as the first process of a pod that shares its processes, it reaps
			if _, err := syscall.Wait4(-1, nil, 0, nil); err == syscall.ECHILD {
				child := make(chan os.Signal, 1) // one is enough: all that ended are reaped
				signal.Notify(child, syscall.SIGCHLD)
				<-child
				signal.Stop(child)
			}
		}
	}()
	<-end
}
