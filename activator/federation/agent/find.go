package agent

import (
	"context"
	"net"
	"slices"
	"time"
)

const (
	findEvery   = 2 * time.Second
	findTimeout = 5 * time.Second
)

// Lookup returns a [Config.Find] that takes each address of a DNS name, such as a headless Service's, for a front door.
func Lookup(name, port string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		hosts, err := net.DefaultResolver.LookupHost(ctx, name)
		for i, host := range hosts {
			hosts[i] = net.JoinHostPort(host, port)
		}
		return hosts, err
	}
}

// followFind serves the front doors that Find returns. If Find fails, all stay.
func (a *Agent) followFind(ctx context.Context) {
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
