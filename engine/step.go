package engine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/sched"
)

// addSequences adds a request's sequences to a stream. They have no ID yet.
func (e *Engine) addSequences(s *Stream, r *Request) {
	params := r.params(e.ends)
	for i := range r.N {
		s.sequences = append(s.sequences, &sequence{
			index: len(s.sequences), first: i == 0, request: r, stream: s,
			sampler: sample.New(params, i),
			text:    e.tok.Stream(),
			stop:    newStopper(r.Stop, r.KeepStop),
		})
	}
}

// admit hands a request to the scheduler, unless its client has left already.
func (e *Engine) admit(s *Stream) {
	if s.ended() {
		e.close(len(s.sequences))
		return
	}
	for _, q := range s.sequences {
		err := e.sched.Add(sched.Request{
			ID: q.id, Prompt: q.request.Prompt, Max: len(q.request.Prompt) + q.request.MaxTokens, Score: q.request.ScorePrompt,
		})
		if err != nil {
			// Add checked the request against the context, and the context against the memory.
			panic(fmt.Sprintf("engine: the scheduler refused a checked request: %v", err))
		}
		e.live[q.id] = q
	}
}

// close counts n sequences as finished.
func (e *Engine) close(n int) {
	e.mu.Lock()
	e.open -= n
	e.mu.Unlock()
}

// drop forgets what is left of a request.
func (e *Engine) drop(s *Stream) {
	for _, q := range s.sequences {
		if e.live[q.id] == q {
			e.sched.Abort(q.id)
			e.forget(q)
		}
	}
	s.unbind()
}

// forget removes a sequence that the scheduler no longer knows.
func (e *Engine) forget(q *sequence) {
	delete(e.live, q.id)
	e.close(1)
}

// fail ends a request with err.
func (e *Engine) fail(s *Stream, err error) {
	s.end(err, false)
	e.drop(s)
}

// failAll ends every request with err.
func (e *Engine) failAll(err error) {
	for _, q := range e.live {
		e.fail(q.stream, err)
	}
}

// step computes a batch and sends what comes of it.
func (e *Engine) step(ctx context.Context, batch *sched.Batch) {
	e.batch.Items = e.batch.Items[:0]
	for _, item := range batch.Items {
		want := infer.None
		switch {
		case item.Score:
			want = infer.All
		case item.Sample:
			want = infer.Last
		}
		e.batch.Items = append(e.batch.Items, infer.Item{Tokens: item.Tokens, Pos: item.Pos, Blocks: item.Blocks, Want: want})
	}
	out, err := e.inf.Forward(ctx, &e.batch)
	if err == nil && len(out.Logits) != len(batch.Items) {
		err = fmt.Errorf("%d logits for %d sequences", len(out.Logits), len(batch.Items))
	}
	e.count(batch.Tokens, err)
	if err != nil {
		if ctx.Err() != nil {
			return // Run ends, and ends everything with it
		}
		e.failAll(&StepError{Err: err})
		e.sched.Reset() // nothing of the batch is cached
		return
	}
	e.results = e.results[:0]
	for i, item := range batch.Items {
		if item.Score || item.Sample {
			e.receive(item, out.Logits[i])
		}
	}
	e.sched.Update(batch.Step, e.results)
}

// StepError ends all requests of a step that failed.
type StepError struct{ Err error }

// Error implements error.
func (e *StepError) Error() string { return fmt.Sprintf("the model failed to compute: %v", e.Err) }

// Unwrap returns the inferencer's error.
func (e *StepError) Unwrap() error { return e.Err }

// receive takes the logits of one item and sends its event, if it has one.
func (e *Engine) receive(item sched.Item, logits []float32) {
	q := e.live[item.ID]
	if q == nil {
		return // a sibling's failure ended it in this step
	}
	if item.Score {
		vocab := len(logits) / len(item.Tokens)
		for i := range item.Tokens {
			q.score(item.Pos+i, logits[i*vocab:(i+1)*vocab])
		}
		logits = logits[len(logits)-vocab:]
	}
	if !item.Sample {
		return
	}
	ev, err := q.next(logits, e)
	if err != nil {
		e.fail(q.stream, &StepError{Err: err})
		return
	}
	e.countToken(q, ev)
	done := ev.Finish != ""
	e.results = append(e.results, sched.Result{ID: item.ID, Tokens: []int32{ev.Token}, Done: done})
	q.stream.push(ev)
	if done {
		e.finish(q)
	}
}

// finish ends a sequence that made its last event, and its stream with the last of them.
func (e *Engine) finish(q *sequence) {
	e.forget(q)
	if q.stream.left--; q.stream.left == 0 {
		q.stream.unbind()
		q.stream.end(io.EOF, false)
	}
}

// Probe generates one token and returns it: the proof that the model works. It
// takes its place in the queue like any request.
func (e *Engine) Probe(ctx context.Context) (token int32, err error) {
	s, err := e.Add(ctx, Request{Prompt: []int32{e.probeToken()}, MaxTokens: 1, IgnoreEnd: true})
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

// probeToken is the prompt of a probe: the beginning of a text.
func (e *Engine) probeToken() int32 {
	bos, _ := e.tok.BOS()
	return max(bos, 0)
}
