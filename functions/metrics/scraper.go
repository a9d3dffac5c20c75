package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/functions/runtime"
)

const (
	scrapeTimeout = 250 * time.Millisecond // no scrape of ours waits longer for the runtime's
	scrapeEvery   = 200 * time.Millisecond // what a picker takes for fresh
	scrapeKept    = 5 * time.Second        // how long an old answer stands in where a busy runtime gives none
)

// scraper reads the runtime's signals for all who ask.
type scraper struct {
	read func(context.Context) (runtime.Signals, error)

	mu     sync.Mutex // guards what follows; held while the runtime is asked, so that it is asked once for many
	asked  time.Time
	given  time.Time // when last was given; zero: never, or forgotten
	last   runtime.Signals
	prompt float64 // the highest totals: counters must not go back to ours when the runtime is silent
	tokens float64
	counts bool // the runtime gives totals
}

// signals returns the runtime's signals, asking it if the last answer is old.
// found is false where there are none.
func (s *scraper) signals() (v runtime.Signals, found bool) {
	if s.read == nil {
		return unknown, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) >= scrapeEvery {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
		v, err := s.read(ctx)
		cancel()
		s.asked = time.Now()
		if err == nil {
			s.given, s.last = s.asked, v
			if v.PromptTokens >= 0 && v.GeneratedTokens >= 0 {
				s.prompt, s.tokens, s.counts = v.PromptTokens, v.GeneratedTokens, true
			}
		}
	}
	if s.given.IsZero() || time.Since(s.given) >= scrapeKept {
		return unknown, false
	}
	return s.last, true
}

// forget drops what the runtime said: it does not run any more, or sleeps.
func (s *scraper) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given, s.asked = time.Time{}, time.Time{}
}

// totals are the last totals that the runtime gave, negative where it never did.
func (s *scraper) totals() (prompt, generated float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.counts {
		return -1, -1
	}
	return s.prompt, s.tokens
}
