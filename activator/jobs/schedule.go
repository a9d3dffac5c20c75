package jobs

import (
	"context"
	"sync"
)

func (s *Server) startBatches(ctx context.Context, all *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		owner, id, ok := s.hurry.next(nil, 1) // these end at once
		if !ok && len(s.running) < s.cfg.Active {
			owner, id, ok = s.waiting.next(s.running, max(1, s.cfg.Active/8))
		}
		if !ok {
			break
		}
		mine, cancel := context.WithCancelCause(ctx)
		s.running[id] = &running{owner: owner, cancel: cancel}
		all.Go(func() {
			s.runBatch(ctx, mine, owner, id)
			cancel(nil)
			s.mu.Lock()
			delete(s.running, id)
			s.metrics.running.Set(float64(len(s.running)))
			s.mu.Unlock()
			s.stir()
		})
	}
	s.metrics.running.Set(float64(len(s.running)))
}
