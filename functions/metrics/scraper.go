package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

const (
	scrapeTimeout = 250 * time.Millisecond // no scrape of ours waits longer for the runtime's
	scrapeEvery   = 200 * time.Millisecond // fresh enough for a picker
	scrapeKept    = 5 * time.Second        // how long an old answer is used if a busy runtime gives none
)

type scraper struct {
	read func(context.Context) (runtime.Signals, error)

	mu    sync.Mutex // guards the fields below; held while the runtime is asked, so that concurrent callers share one answer
	asked time.Time
	given time.Time // when last was read; zero: never, or it slept since
	last  runtime.Signals
	any   bool // last was ever read
}

// signals reads the runtime's signals again if the last answer is old. found is false if there are none.
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

func (s *scraper) look(ctx context.Context) {
	if s.read == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask(ctx)
}

// The caller holds mu.
func (s *scraper) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	v, err := s.read(ctx)
	s.asked = time.Now()
	if err == nil {
		s.given, s.last, s.any = s.asked, v, true
	}
}

func (s *scraper) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given, s.asked = time.Time{}, time.Time{}
}

// remembered returns the runtime's last answer, however old: its sizes and counters stay true.
func (s *scraper) remembered() runtime.Signals {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.any {
		return runtime.Unknown()
	}
	return s.last
}

type stateCollector struct {
	status func() api.InstanceStatus
	state  *prometheus.Desc
}

func newStateCollector(status func() api.InstanceStatus) *stateCollector {
	return &stateCollector{status, prometheus.NewDesc("rouse_function_state", "1 for the state the instance is in, 0 for the others.", []string{"state"}, nil)}
}

func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.state }

func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	present := c.status().State
	for _, state := range api.States {
		value := 0.0
		if state == present {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, value, string(state))
	}
}
