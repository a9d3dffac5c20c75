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

	mu    sync.Mutex // guards what follows; held while the runtime is asked, so that it is asked once for many
	asked time.Time
	given time.Time // when last was given; zero: never, or it sleeps since
	last  runtime.Signals
	any   bool // last was given at some time
}

// signals returns the runtime's signals, asking it if the last answer is old.
// found is false where there are none.
func (s *scraper) signals() (v runtime.Signals, found bool) {
	if s.read == nil {
		return runtime.Unknown(), false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) >= scrapeEvery {
		s.ask(context.Background())
	}
	if s.given.IsZero() || time.Since(s.given) >= scrapeKept {
		return runtime.Unknown(), false
	}
	return s.last, true
}

// look asks the runtime whenever it was asked last.
func (s *scraper) look(ctx context.Context) {
	if s.read == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask(ctx)
}

// ask asks the runtime. The caller holds mu.
func (s *scraper) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	v, err := s.read(ctx)
	s.asked = time.Now()
	if err == nil {
		s.given, s.last, s.any = s.asked, v, true
	}
}

// forget drops what the runtime said of its load: it does not run any more, or sleeps.
func (s *scraper) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given, s.asked = time.Time{}, time.Time{}
}

// remembered is what the runtime said last, whenever that was. What it is, how much it
// holds and what it has counted stays true.
func (s *scraper) remembered() runtime.Signals {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.any {
		return runtime.Unknown()
	}
	return s.last
}
