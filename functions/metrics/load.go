package metrics

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Meter makes rates of what [Metrics] counts, from look to look. It belongs to one
// goroutine.
type Meter struct {
	metrics *Metrics
	last    runtime.Signals // at the last look; meaningless while at is zero
	firsts  runtime.Histogram
	at      time.Time // of the last look, or of the moment since when requests run
}

// Meter makes a meter that has not looked yet.
func (m *Metrics) Meter() *Meter { return &Meter{metrics: m} }

// Begin says that requests run from now on, and that none did since the last look:
// that time counts for no rate. The first time, it looks.
func (m *Meter) Begin() {
	if m.at.IsZero() {
		m.Poll()
	}
	m.at = time.Now()
}

// Poll returns the load now. It asks the runtime, for at most a quarter of a second.
// Rates and the time to first token are of what happened since the look before, and
// 0 at the first look and after the runtime's counters began anew.
func (m *Meter) Poll() api.Load {
	v, _ := m.metrics.protocol.read()
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

// Rest is the load of a runtime without requests: what its prefix cache has, if it publishes that. It asks nobody.
func (m *Meter) Rest() (load api.Load) {
	load.Cached, load.CacheKnown = m.metrics.published()
	return load
}

// published is how many tokens the prefix cache has, as the runtime publishes.
func (m *Metrics) published() (tokens api.Tokens, known bool) {
	if m.cached == nil {
		return 0, false
	}
	n, known := m.cached()
	return api.Tokens(n), known
}

// cache is how many tokens the prefix cache has: what the runtime publishes, else what its metrics say, else all that it has room for.
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

// firsts are the times to the first token: the runtime's, else what the function measured.
func (m *Metrics) firsts(v runtime.Signals) runtime.Histogram {
	if h, theirs := v.Times[runtime.FirstToken]; theirs {
		return h
	}
	return runtime.Histogram{Count: m.firstTokens.Load(), Sum: time.Duration(m.firstTokenTime.Load()).Seconds()}
}

// mostFirstToken is how many seconds a first token may take on average; more is a fault of the counters.
const mostFirstToken = 3600

// sane is v, or 0 where v is none that a server can mean: it comes from a text that
// somebody else wrote, and goes into JSON, which has no infinity.
func sane(v float64) float64 {
	if v > 0 && v < 1e9 {
		return v
	}
	return 0
}

// Differs says whether a differs from b by so much that whoever plans with it
// should know.
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
