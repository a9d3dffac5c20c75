package clusteragent

import (
	"context"
	"net"
	"slices"
	"time"
)

// Lookups of front doors: how often, and how long one may take.
const (
	findEvery   = 2 * time.Second
	findTimeout = 5 * time.Second
)

// Lookup finds the front doors that a name of DNS stands for, each at an address of its own: those of a headless Service. It is for [Config.Find].
func Lookup(name, port string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		hosts, err := net.DefaultResolver.LookupHost(ctx, name)
		for i, host := range hosts {
			hosts[i] = net.JoinHostPort(host, port)
		}
		return hosts, err
	}
}

// follow serves the front doors that Find names, until ctx ends. One that is not named any more is left; where
// nobody can say which there are, all stay.
func (a *Agent) follow(ctx context.Context) {
	logged := ""
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, findTimeout)
		list, err := a.cfg.Find(asking)
		cancel()
		switch {
		case err != nil && err.Error() != logged && ctx.Err() == nil:
			logged = err.Error()
			a.log.Warn("the front doors are not found; it is tried again", "error", err)
		case err == nil:
			logged = ""
			for _, at := range list {
				a.add(ctx, at, true)
			}
			a.leaveAllBut(list)
		}
		select {
		case <-time.After(findEvery):
		case <-ctx.Done():
		}
	}
}

// leaveAllBut ends the sessions with front doors that Find named and does not name any more.
func (a *Agent) leaveAllBut(list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, f := range a.fronts {
		if f.found && !slices.Contains(list, at) {
			f.stop()
			delete(a.fronts, at)
		}
	}
}
