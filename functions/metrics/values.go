package metrics

import (
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// The largest plausible values; a larger one is ignored, so that no decision depends on a fault of the runtime.
const (
	mostRequests = 1e6
	mostTokens   = 1e15
	mostUsage    = 1.5 // a share, plus rounding and overcommitment
)

// or replaces a value that is not plausible.
func or(v *float64, most, otherwise float64) {
	if !(*v >= 0 && *v <= most) { // NaN too
		*v = otherwise
	}
}

// values merges three sources: 1. the runtime's present answer, s; 2. its last answer, for values that a sleep does not change; 3. the
// function's own counts. An unknown size stays negative.
func (p *protocol) values(status api.InstanceStatus, load proxy.Load, s runtime.Signals) runtime.Signals {
	last := p.scraper.remembered()
	for _, v := range []struct{ now, last *float64 }{
		{&s.BlockTokens, &last.BlockTokens}, {&s.Blocks, &last.Blocks}, {&s.Capacity, &last.Capacity},
		{&s.PromptTokens, &last.PromptTokens}, {&s.GeneratedTokens, &last.GeneratedTokens},
	} {
		or(v.last, mostTokens, -1)
		or(v.now, mostTokens, *v.last)
	}
	if s.Capacity <= 0 && s.BlockTokens > 0 && s.Blocks > 0 {
		s.Capacity = s.BlockTokens * s.Blocks
	}
	if s.Times == nil {
		s.Times = last.Times
	}
	if s.MaxAdapters <= 0 {
		s.MaxAdapters = last.MaxAdapters
	}
	or(&s.PromptTokens, mostTokens, float64(p.metrics.prompt.Load()))
	or(&s.GeneratedTokens, mostTokens, float64(p.metrics.generated.Load()))
	or(&s.Running, mostRequests, float64(load.Requests))
	or(&s.Waiting, mostRequests, 0)
	tokens(&s, status, load)
	s.RunningAdapters, s.WaitingAdapters = atWork(status, load, s)
	return s
}

// tokens sets the use of the KV cache and the waiting tokens. If the runtime reports the number of its queued requests, that many of the
// unanswered ones count as queued.
func tokens(s *runtime.Signals, status api.InstanceStatus, load proxy.Load) {
	queued := 0.0
	if load.Queued > 0 {
		queued = float64(load.QueuedTokens) * min(1, s.Waiting/float64(load.Queued))
	}
	or(&s.QueuedTokens, mostTokens, queued)
	running, usage := max(0, float64(load.Tokens)-queued), 0.0
	switch {
	case s.Capacity > 0:
		usage = running / s.Capacity
	case status.Concurrency > 0:
		usage = float64(load.Requests) / float64(status.Concurrency)
	}
	or(&s.KVUsage, mostUsage, usage)
	s.KVUsage = min(s.KVUsage, 1)
	or(&s.Tokens, mostTokens, running)
	if s.Capacity > 0 {
		s.Tokens = min(s.Tokens, s.Capacity)
	}
}

// atWork returns the adapters that running requests use, and those that waiting requests need. The runtime's lists may be old, or may
// list all loaded adapters (vLLM fills both lists from one, and does not empty them). So they count only
//
//  1. for adapters of requests that are in the runtime: whether they wait;
//  2. for adapters that the function does not know, while requests run.
func atWork(status api.InstanceStatus, load proxy.Load, s runtime.Signals) (running, waiting []string) {
	for _, a := range load.Adapters { // 1.
		name := string(a)
		if s.Waiting > 0 && slices.Contains(s.WaitingAdapters, name) && !slices.Contains(s.RunningAdapters, name) {
			waiting = append(waiting, name)
			continue
		}
		running = append(running, name)
	}
	foreign := func(names []string) (found []string) { // 2.
		for _, name := range names {
			if !slices.Contains(status.Adapters, api.ModelName(name)) && !slices.Contains(load.Adapters, api.ModelName(name)) {
				found = append(found, name)
			}
		}
		return found
	}
	if s.Running > 0 {
		running = append(running, foreign(s.RunningAdapters)...)
	}
	if s.Waiting > 0 {
		waiting = append(waiting, foreign(s.WaitingAdapters)...)
	}
	slices.Sort(running)
	slices.Sort(waiting)
	return running, waiting
}
