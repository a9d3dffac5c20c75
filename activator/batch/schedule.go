package batch

import (
	"context"
	"sync"
)

// startBatches starts those that may run now.
func (s *Server) startBatches(ctx context.Context, all *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		k := s.nextBatch()
		if k < 0 {
			break
		}
		b := s.waiting[k]
		s.waiting = append(s.waiting[:k], s.waiting[k+1:]...)
		mine, cancel := context.WithCancelCause(ctx)
		s.running[b.ID] = &running{owner: b.Owner, cancel: cancel}
		all.Go(func() {
			s.runBatch(ctx, mine, b.Owner, b.ID)
			cancel(nil)
			s.mu.Lock()
			delete(s.running, b.ID)
			s.metrics.running.Set(float64(len(s.running)))
			s.mu.Unlock()
			s.stir()
		})
	}
	s.metrics.running.Set(float64(len(s.running)))
}

// nextBatch is which of those that wait may run: of the owner of whom the fewest run the first one, -1 if none may. The caller holds mu.
func (s *Server) nextBatch() int {
	if len(s.running) >= s.cfg.Active {
		return -1
	}
	of := map[string]int{}
	for _, r := range s.running {
		of[r.owner]++
	}
	best := -1
	for k, b := range s.waiting {
		if best < 0 || of[b.Owner] < of[s.waiting[best].Owner] {
			best = k
		}
	}
	return best
}
