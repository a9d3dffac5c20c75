package simulate

import (
	"math"
	"time"

	"github.com/rouse-dev/rouse/internal/heap"
)

// batch is the work of an awake instance. Prompts are processed one after the other; then all requests of the batch
// generate tokens at the same pace, so each ends when the common count reaches its mark. Prefill does not slow
// generation down here: the published rates behind the models' numbers include that loss.
type batch struct {
	m *Model
	// prefill are requests whose prompts wait; the first one's ends at ready.
	prefill []*request
	ready   time.Duration
	decode  heap.Of[*request] // by mark
	// tokens are those of a request that was in the batch from the beginning, at time at.
	tokens float64
	at     time.Duration
	timer  timer
	// crowd is how many busy instances share its GPU; 0 means 1.
	crowd int
}

// pace returns the duration of a step with n requests, alone on the GPU.
func (m *Model) pace(n int) time.Duration {
	return m.Step + time.Duration(m.Slope*float64(m.Step)*float64(max(0, n-1)))
}

func (b *batch) advance(now time.Duration) {
	if n := b.decode.Len(); n > 0 {
		b.tokens += float64(now-b.at) / float64(b.pace(n))
	}
	b.at = now
}

func (b *batch) pace(n int) time.Duration { return b.m.pace(n) * time.Duration(max(1, b.crowd)) }

func (b *batch) share(n int, now time.Duration) {
	if old := max(1, b.crowd); old != n {
		b.advance(now)
		b.ready = now + max(0, b.ready-now)*time.Duration(n)/time.Duration(old)
		b.crowd = n
		b.arm()
	}
}

func (b *batch) add(r *request, now time.Duration) {
	b.prefill = append(b.prefill, r)
	if len(b.prefill) == 1 {
		b.ready = now + b.prompt(r)
	}
	b.arm()
}

func (b *batch) prompt(r *request) time.Duration {
	return time.Duration(float64(r.prompt)/b.m.Prefill*float64(time.Second)) * time.Duration(max(1, b.crowd))
}

// arm sets the timer to the next end.
func (b *batch) arm() {
	at := time.Duration(math.MaxInt64)
	if len(b.prefill) > 0 {
		at = b.ready
	}
	if n := b.decode.Len(); n > 0 {
		left := max(0, b.decode.First().mark-b.tokens) * float64(b.pace(n))
		at = min(at, b.at+time.Duration(math.Ceil(left)))
	}
	if at == math.MaxInt64 {
		b.timer.stop()
		return
	}
	b.timer.reset(at)
}

// step returns the requests that have all their tokens, and calls first for one whose first token comes after d.
func (b *batch) step(now time.Duration, first func(r *request, d time.Duration)) (done []*request) {
	const near = 1e-6 // in tokens; times are whole nanoseconds
	b.advance(now)
	for b.decode.Len() > 0 && b.decode.First().mark <= b.tokens+near {
		r := b.decode.First()
		b.decode.Remove(r)
		done = append(done, r)
	}
	for len(b.prefill) > 0 && b.ready <= now {
		r := b.prefill[0]
		b.prefill = b.prefill[1:]
		r.mark = b.tokens + float64(max(1, r.output))
		b.decode.Put(r)
		first(r, b.pace(b.decode.Len()))
		if len(b.prefill) > 0 {
			b.ready = now + b.prompt(b.prefill[0])
		}
	}
	b.arm()
	return done
}

// drain removes and returns the requests that generate tokens.
func (b *batch) drain() (all []*request) {
	for b.decode.Len() > 0 {
		r := b.decode.Last()
		b.decode.Remove(r)
		all = append(all, r)
	}
	return all
}

// Before implements [heap.Item].
func (r *request) Before(s *request) bool {
	return r.mark < s.mark || r.mark == s.mark && r.number < s.number
}

// Slot implements [heap.Item].
func (r *request) Slot() *int { return &r.slot }
