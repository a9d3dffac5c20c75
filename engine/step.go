package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/worker"
)

func (e *loop) admit(s *Stream) {
	if s.ended() {
		for _, q := range s.sequences {
			e.close(q)
		}
		return
	}
	for _, q := range s.sequences { // all at once: a failure ends the later ones too
		e.live[q.id], q.live = q, true
	}
	for i := 0; i < len(s.sequences); i += s.sequences[i].request.N {
		if err := e.admitGroup(s.sequences[i : i+s.sequences[i].request.N]); err != nil {
			e.fail(s, err)
			return
		}
	}
}

// admitGroup schedules sequences one by one if they resume, or have a state each.
func (e *loop) admitGroup(group []*sequence) error {
	resumed := len(group[0].request.Resume) > 0
	if !resumed && !e.model.Stateful() {
		return e.schedule(group)
	}
	for i, q := range group {
		over, err := false, error(nil)
		if resumed {
			over, err = e.resume(q)
		}
		if err == nil && !over {
			err = e.schedule(group[i : i+1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resume sends events of another server's tokens, and reports whether the text is complete.
func (e *loop) resume(q *sequence) (over bool, err error) {
	tokens := q.request.Resume[q.nth]
	for i, t := range tokens {
		if over {
			return true, invalid("resume", "%d tokens to go on from follow the end of the text", len(tokens)-i)
		}
		ev := e.newEvent(q.stream)
		if err := q.next(ev, &sample.Choice{Token: t}, e.Engine); err != nil {
			e.outbox = e.outbox[:len(e.outbox)-1]
			return false, invalid("resume", "the tokens to go on from are not of this request: %v", err)
		}
		over = ev.Finish != ""
	}
	if over {
		e.finish(q)
	}
	return over, nil
}

// schedule fails if the memory is too small.
func (e *loop) schedule(group []*sequence) error {
	q := group[0]
	r := q.request
	tokens, root := q.known(), r.root()
	if len(r.Resume) > 0 && e.store != nil {
		e.store.Refresh() // another server may have just written blocks
	}
	score := r.ScorePrompt && len(r.scores) < len(r.Prompt)-1 && len(q.made) == 0 // a resumed one has sent them
	if !score && r.Embed == "" {                                                  // they need every position computed
		e.recall(tokens, root)
	}
	err := e.sched.Add(sched.Request{
		ID: q.id, Prompt: tokens, Max: len(r.Prompt) + r.MaxTokens,
		Priority: r.Priority, Tenant: r.Tenant, Root: root, Siblings: len(group), Whole: r.spans(),
		Score: score, Pool: r.Embed != "", Lockstep: q.matcher != nil,
	})
	if errors.Is(err, sched.ErrTooLong) {
		return &RequestError{Param: "prompt", TooLong: true, Message: err.Error()}
	}
	return err
}

func (e *loop) close(q *sequence) {
	e.mu.Lock()
	e.open--
	e.images -= len(q.request.Images)
	if a := q.request.adapter; a != nil {
		a.leave()
	}
	e.mu.Unlock()
}

func (e *loop) drop(s *Stream) {
	for _, q := range s.sequences {
		if q.live {
			e.sched.Abort(q.id)
			e.forget(q)
		}
	}
	s.unbind()
}

// forget is for a sequence that the scheduler does not have.
func (e *loop) forget(q *sequence) {
	delete(e.live, q.id)
	q.live = false
	e.clearSuspect(q)
	e.close(q)
}

func (e *loop) fail(s *Stream, err error) {
	s.end(err, false)
	e.drop(s)
}

func (e *loop) failAll(err error) {
	for _, q := range e.live {
		e.fail(q.stream, err)
	}
}

type flight struct {
	step  uint64
	items []part
}

// part is an item of a flight.
type part struct {
	q      *sequence
	sample bool // a token or a vector
	score  bool
	draft  int
}

func (e *loop) fill() {
	if e.down {
		return
	}
	for {
		b := e.sched.Schedule()
		if b == nil {
			return
		}
		e.pack(b)
		e.worker.Queue(&e.batch)
	}
}

// pack makes the worker's batch and a flight.
func (e *loop) pack(b *sched.Batch) {
	var f flight
	if n := len(e.flights); n < cap(e.flights) {
		f = e.flights[:n+1][n] // reuses its memory
	}
	n := len(b.Items)
	f.step, f.items = b.Step, slices.Grow(f.items[:0], n)[:n]
	w := &e.batch
	w.Step, w.Ends, w.Copies, w.Items = b.Step, append(w.Ends[:0], e.forgets...), w.Copies[:0], slices.Grow(w.Items[:0], n)[:n]
	e.forgets = e.forgets[:0]
	for _, id := range b.Ends {
		w.Ends = append(w.Ends, uint64(id))
	}
	for _, c := range b.Copies {
		w.Copies = append(w.Copies, worker.Copy{From: c.From, To: c.To})
	}
	for i := range b.Items {
		it := &b.Items[i]
		q := e.lookup(it.ID, i)
		f.items[i] = part{q: q, sample: it.Sample, score: it.Score, draft: it.Draft}
		e.packItem(&w.Items[i], it, q)
	}
	e.flights = append(e.flights, f)
}

// packItem fills wi in place: a copy costs as much as the rest.
func (e *loop) packItem(wi *worker.Item, it *sched.Item, q *sequence) {
	*wi = worker.Item{}
	wi.ID, wi.Pos, wi.Count, wi.Blocks = uint64(it.ID), it.Pos, len(it.Tokens), it.Blocks[len(it.Blocks)-it.New:]
	wi.Sample, wi.Score, wi.Pool = it.Sample && !it.Pool, it.Score, it.Sample && it.Pool
	if it.Begin {
		if len(q.made) == 0 {
			q.cached = it.Pos
		}
		wi.Begin, wi.Prompt, wi.Tokens, wi.Spec = true, len(q.request.Prompt), it.Known, q.spec()
	}
	if it.Draft > 0 {
		wi.Draft = it.Tokens[len(it.Tokens)-it.Draft:]
	}
	if q.matcher != nil && wi.Sample {
		wi.Mask = q.allow(e.ends)
	}
}

// lookup: usually it is at the same index of the previous batch.
func (e *loop) lookup(id sched.ID, place int) *sequence {
	if place < len(e.recent) {
		if q := e.recent[place]; q.id == id && q.live {
			return q
		}
		e.recent = e.recent[:place]
	}
	q := e.live[id]
	e.recent = append(e.recent, q)
	return q
}

// popFlight leaves the memory to the next flight.
func (e *loop) popFlight() flight {
	f := e.flights[0]
	last := copy(e.flights, e.flights[1:])
	e.flights[last] = f
	e.flights = e.flights[:last]
	return f
}

// StepError ends all requests of a failed step, or one that could not be computed.
type StepError struct{ Err error }

// Error implements error.
func (e *StepError) Error() string { return fmt.Sprintf("the model failed to compute: %v", e.Err) }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// finish ends the stream with its last sequence.
func (e *loop) finish(q *sequence) {
	e.forget(q)
	if q.stream.left--; q.stream.left == 0 {
		q.stream.unbind()
		e.outbox = append(e.outbox, message{stream: q.stream, over: true})
	}
}

type message struct {
	stream *Stream
	event  Event
	over   bool
}

// newEvent appends an event to be filled in place.
func (e *loop) newEvent(s *Stream) *Event {
	n := len(e.outbox)
	e.outbox = slices.Grow(e.outbox, 1)[:n+1]
	m := &e.outbox[n]
	m.stream, m.over = s, false
	return &m.event
}

// flush runs after the next batch is queued: the worker does not wait.
func (e *loop) flush() {
	for i := range e.outbox {
		m := &e.outbox[i]
		if m.over {
			m.stream.end(io.EOF, false)
		} else {
			m.stream.push(&m.event)
		}
	}
	clear(e.outbox)
	e.outbox = e.outbox[:0]
}

// Probe generates a token, or a vector, in the queue.
func (e *Engine) Probe(ctx context.Context) (token int32, err error) {
	r := Request{Prompt: []int32{e.probeToken()}, MaxTokens: 1, IgnoreEnd: true}
	if r.Embed = e.pooling(); r.Embed != "" {
		r.MaxTokens = 0
	}
	s, err := e.Add(ctx, r)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	ev, err := s.Next()
	if errors.Is(err, io.EOF) {
		err = errors.New("the probe ended without a token")
	}
	return ev.Token, err
}

// pooling is for a model of vectors only.
func (e *Engine) pooling() Pooling {
	switch {
	case e.model.Ranks:
		return PoolRank
	case e.model.Encoder:
		return PoolFirst
	}
	return ""
}

func (e *Engine) probeToken() int32 {
	bos, _ := e.tok.BOS()
	return max(bos, 0)
}
