package serve

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/engine"
)

// The handler's goroutine owns a meter.
type meter struct {
	metrics  *metrics
	adapter  string
	began    time.Time
	requests []engine.Request
	of       map[int]*timing
}

type timing struct {
	first, last time.Time
	tokens      int
}

func (m *metrics) meter(requests []engine.Request) *meter {
	adapter := requests[0].Adapter
	m.adapters.add(adapter, 1, 0)
	for i := range requests {
		m.promptTokens.Observe(float64(len(requests[i].Prompt)))
	}
	return &meter{metrics: m, adapter: adapter, began: time.Now(), requests: requests, of: map[int]*timing{}}
}

func (m *meter) event(ev *engine.Event) {
	now := time.Now()
	t := m.of[ev.Index]
	if t == nil {
		if len(m.of) == 0 {
			m.metrics.adapters.add(m.adapter, -1, 1)
		}
		t = &timing{first: now}
		m.of[ev.Index] = t
		m.metrics.firstToken.Observe(now.Sub(m.began).Seconds())
		if prompt := len(m.requests[ev.Index/max(1, m.requests[0].N)].Prompt); prompt > 0 {
			m.metrics.prefillToken.Observe(now.Sub(m.began).Seconds() / float64(prompt))
		}
	} else {
		m.metrics.nextToken.Observe(now.Sub(t.last).Seconds())
		m.metrics.outputToken.Observe(now.Sub(t.last).Seconds())
	}
	t.last = now
	t.tokens++
	if ev.Finish != "" {
		m.finish(t, ev.Finish, now)
	}
}

func (m *meter) finish(t *timing, reason engine.Finish, now time.Time) {
	m.metrics.request.Observe(now.Sub(m.began).Seconds())
	m.metrics.decode.Observe(now.Sub(t.first).Seconds())
	if t.tokens > 1 {
		m.metrics.perToken.Observe(now.Sub(t.first).Seconds() / float64(t.tokens-1))
	}
	m.metrics.generationTokens.Observe(float64(t.tokens))
	if c := m.metrics.finished[reason]; c != nil {
		c.Inc()
	}
}

// vector counts an event with a vector, which is not a token.
func (m *meter) vector() {
	if len(m.of) == 0 {
		m.metrics.adapters.add(m.adapter, -1, 1)
		m.of[0] = &timing{}
	}
	m.metrics.request.Observe(time.Since(m.began).Seconds())
	m.metrics.finished[engine.FinishStop].Inc()
}

// end must be called once.
func (m *meter) end() {
	if len(m.of) == 0 {
		m.metrics.adapters.add(m.adapter, -1, 0)
	} else {
		m.metrics.adapters.add(m.adapter, 0, -1)
	}
}

func names(count map[string]int) string {
	return strings.Join(slices.Sorted(maps.Keys(count)), ",")
}
