package metrics

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Meter derives rates from successive readings of [Metrics]. It belongs to one goroutine.
type Meter struct {
	metrics *Metrics
	last    runtime.Signals // at the last reading; meaningless while at is zero
	firsts  runtime.Histogram
	at      time.Time // of the last reading, or since when requests run
}

// Meter returns a meter without a reading.
func (m *Metrics) Meter() *Meter { return &Meter{metrics: m} }

// Begin says that requests run from now on, and that none did since the last reading: that time counts for no rate. The first call also
// takes a reading.
func (m *Meter) Begin() {
	if m.at.IsZero() {
		m.Poll()
	}
	m.at = time.Now()
}

// Poll returns the present load. It asks the runtime, for at most a quarter of a second. Rates and the time to first token cover the
// time since the previous reading. They are 0 at the first reading, and after the runtime's counters were reset.
func (m *Meter) Poll() api.Load {
	v := m.metrics.protocol.read()
	now, firsts := time.Now(), m.metrics.firsts(v)
	load := api.Load{Running: int(sane(v.Running)), Waiting: int(sane(v.Waiting)), KVUsage: sane(v.KVUsage)}
	load.Cached, load.CacheKnown = m.metrics.cache(v)
	if passed := now.Sub(m.at).Seconds(); !m.at.IsZero() && passed > 0 {
		load.TokensPerSecond = sane((v.GeneratedTokens - m.last.GeneratedTokens) / passed)
		load.PromptTokensPerSecond = sane((v.PromptTokens - m.last.PromptTokens) / passed)
		first, took := float64(firsts.Count)-float64(m.firsts.Count), sane(firsts.Sum-m.firsts.Sum)
		if each := took / first; first >= 1 && each <= mostFirstToken {
			load.TTFT = time.Duration(each * float64(time.Second))
		}
	}
	m.last, m.firsts, m.at = v, firsts, now
	return load
}

// Rest returns the load of a runtime without requests: the size of its prefix cache, if it publishes that. It asks nobody.
func (m *Meter) Rest() (load api.Load) {
	load.Cached, load.CacheKnown = m.metrics.published()
	return load
}

// published returns the number of tokens in the prefix cache, from the runtime's events.
func (m *Metrics) published() (tokens api.Tokens, known bool) {
	if m.cached == nil {
		return 0, false
	}
	n, known := m.cached()
	return api.Tokens(n), known
}

// cache returns the number of tokens in the prefix cache: from the runtime's events, else from its metrics, else the cache's capacity.
func (m *Metrics) cache(v runtime.Signals) (tokens api.Tokens, known bool) {
	if tokens, known = m.published(); known {
		return tokens, true
	}
	if !(v.Capacity > 0 && v.Capacity < mostTokens) {
		return 0, false
	}
	if v.Cached >= 0 && v.Cached <= v.Capacity {
		return api.Tokens(v.Cached), true
	}
	return api.Tokens(v.Capacity), true
}

// firsts returns the times to the first token: the runtime's, else those that the function measured.
func (m *Metrics) firsts(v runtime.Signals) runtime.Histogram {
	if h, theirs := v.Times[runtime.FirstToken]; theirs {
		return h
	}
	return runtime.Histogram{Count: m.firstTokens.Load(), Sum: time.Duration(m.firstTokenTime.Load()).Seconds()}
}

// mostFirstToken is the most plausible mean time to a first token, in seconds; more is a fault of the counters.
const mostFirstToken = 3600

// sane returns v, or 0 if v is negative, NaN or implausibly large. v comes from another program's text and goes into JSON, which has no
// infinity.
func sane(v float64) float64 {
	if v > 0 && v < 1e9 {
		return v
	}
	return 0
}

// Differs reports whether a differs from b by so much that a planner should know.
func Differs(a, b api.Load) bool {
	share := func(a, b, least float64) bool {
		d := max(a-b, b-a)
		return d > least && d > max(a, b)/4
	}
	return share(float64(a.Running), float64(b.Running), 0) ||
		share(float64(a.Waiting), float64(b.Waiting), 0) ||
		max(a.KVUsage-b.KVUsage, b.KVUsage-a.KVUsage) >= 0.05 ||
		a.CacheKnown != b.CacheKnown || share(float64(a.Cached), float64(b.Cached), 0) ||
		share(a.TokensPerSecond, b.TokensPerSecond, 1) ||
		share(a.PromptTokensPerSecond, b.PromptTokensPerSecond, 1) ||
		share(a.TTFT.Seconds(), b.TTFT.Seconds(), 0.002)
}
