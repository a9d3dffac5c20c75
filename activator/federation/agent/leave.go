package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

func (a *Agent) ending() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leaving
}

func (a *Agent) leave(drain time.Duration) {
	a.mu.Lock()
	a.leaving = true
	for _, f := range a.fronts {
		if f.session != nil {
			f.session.wake.Ring()
		}
	}
	all := slices.Collect(maps.Keys(a.servers))
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	var ending sync.WaitGroup
	for _, server := range all {
		ending.Go(func() {
			if server.Shutdown(ctx) != nil {
				_ = server.Close()
			}
		})
	}
	ending.Wait()
}
