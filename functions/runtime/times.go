package runtime

import (
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/rouse-dev/rouse/internal/promtext"
)

// readTimes reads the server's histograms. If the server does not report the time per token of a prompt, it is a mean: 1. of the
// prefills, over the prompts of the same requests; 2. of the times to the first token, over all prompts.
func (n metricNames) readTimes(found promtext.Families, s *Signals) {
	for name, theirs := range n.times {
		h, ok := histogram(first(found, theirs))
		if !ok {
			continue
		}
		if s.Times == nil {
			s.Times = map[string]Histogram{}
		}
		s.Times[name] = h
	}
	if _, has := s.Times[PerPrefillToken]; has {
		return
	}
	prompts, any := histogram(found[n.prompts])
	if prefills, has := s.Times[PrefillTime]; has && any { // 1.
		s.Times[PerPrefillToken] = Histogram{Count: tokensIn(prompts.Sum), Sum: prefills.Sum}
	} else if firsts, has := s.Times[FirstToken]; has && s.PromptTokens >= 0 { // 2.
		s.Times[PerPrefillToken] = Histogram{Count: tokensIn(s.PromptTokens), Sum: firsts.Sum}
	}
}

// tokensIn returns a reported number of tokens, or 0 if it is not plausible.
func tokensIn(v float64) uint64 {
	if v > 0 && v < 1e15 {
		return uint64(v)
	}
	return 0
}

// histogram returns the sum of a family's histograms, which are those of a server's several engines. It rejects invalid ones, such as
// falling buckets.
func histogram(f *dto.MetricFamily) (sum Histogram, ok bool) {
	if f == nil {
		return sum, false
	}
	for _, m := range f.Metric {
		h := m.GetHistogram()
		if h == nil || !(h.GetSampleSum() >= 0 && h.GetSampleSum() < 1e15) { // NaN too
			return Histogram{}, false
		}
		sum.Count += h.GetSampleCount()
		sum.Sum += h.GetSampleSum()
		for _, b := range h.GetBucket() {
			if at := b.GetUpperBound(); !math.IsInf(at, 1) && !math.IsNaN(at) {
				if sum.Buckets == nil {
					sum.Buckets = map[float64]uint64{}
				}
				sum.Buckets[at] += b.GetCumulativeCount()
			}
		}
	}
	below := uint64(0)
	for _, at := range slices.Sorted(maps.Keys(sum.Buckets)) {
		if sum.Buckets[at] < below || sum.Buckets[at] > sum.Count {
			return Histogram{}, false
		}
		below = sum.Buckets[at]
	}
	return sum, true
}
