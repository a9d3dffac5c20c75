package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/worker"
)

// receive handles the output of a batch.
//
//  1. Its batch was discarded: it is ignored.
//  2. It does not match its batch: the worker is replaced.
//  3. The step failed: all requests end; after several in a row the worker is replaced.
//  4. Each sequence, and the scheduler, gets its tokens.
func (e *loop) receive(out *worker.Output) {
	if len(e.flights) == 0 || e.flights[0].step != out.Step { // 1
		return
	}
	if err := e.checkOutput(&e.flights[0], out); err != nil { // 2
		err = fmt.Errorf("the worker's answer to step %d is invalid: %w", out.Step, err)
		e.worker.Fail(err)
		e.workerLost(err) // before its next output; Event.Lost and Event.Up follow
		return
	}
	f := e.popFlight()
	if out.Error != "" { // 3
		err := &StepError{Err: errors.New(out.Error)}
		e.countStep(err, 0)
		e.discardFlights()
		e.failAll(err)
		if e.failed++; e.failed >= maxFailures {
			e.failed = 0
			e.worker.Fail(err)
			e.workerLost(err)
		}
		return
	}
	e.failed = 0
	e.countStep(nil, out.Busy)
	e.results, e.tokens = e.results[:0], e.tokens[:0]
	next := 0
	for i := range f.items {
		p := &f.items[i]
		if !reports(p, out, next) {
			continue
		}
		o := &out.Items[next]
		next++
		if p.q.live { // else it has ended
			e.take(p, o)
		}
	}
	e.sched.Update(out.Step, e.results)
	for began := time.Now(); e.cfg.HostWork > 0 && time.Since(began) < e.cfg.HostWork; { // burns CPU time on purpose
	}
}

// reports reports whether the next item is p's.
func reports(p *part, out *worker.Output, next int) bool {
	return p.sample || p.score || next < len(out.Items) && out.Items[next].ID == uint64(p.q.id)
}

func (e *loop) checkOutput(f *flight, out *worker.Output) error {
	if out.Error != "" {
		return nil
	}
	next := 0
	for i := range f.items {
		p := &f.items[i]
		if !reports(p, out, next) {
			continue
		}
		if next == len(out.Items) || out.Items[next].ID != uint64(p.q.id) {
			return fmt.Errorf("sequence %d is missing", p.q.id)
		}
		if err := e.checkItem(p, &out.Items[next]); err != nil {
			return fmt.Errorf("sequence %d: %w", p.q.id, err)
		}
		next++
	}
	if next < len(out.Items) {
		return fmt.Errorf("sequence %d is not in the batch", out.Items[next].ID)
	}
	return nil
}

func (e *loop) checkItem(p *part, o *worker.Out) error {
	if o.Error != "" {
		return nil
	}
	want := 0
	if p.sample && p.q.request.Embed == "" {
		want = 1
	}
	if len(o.Tokens) < want || len(o.Tokens) > want+p.draft {
		return fmt.Errorf("%d tokens, %d to %d are due", len(o.Tokens), want, want+p.draft)
	}
	for _, list := range [][]sample.Choice{o.Tokens, o.Scores} {
		for i := range list {
			if int(list[i].Token) >= e.model.Vocab {
				return fmt.Errorf("token %d of a vocabulary of %d", list[i].Token, e.model.Vocab)
			}
		}
	}
	if p.sample && p.q.request.Embed != "" && len(o.Vector) == 0 {
		return errors.New("no vector")
	}
	return nil
}

func (e *loop) take(p *part, o *worker.Out) {
	q := p.q
	if o.Error != "" {
		err := errors.New(o.Error)
		if o.Error == sample.ErrDamaged.Error() { // over the wire
			err = sample.ErrDamaged
		}
		e.fail(q.stream, &StepError{Err: err})
		return
	}
	if p.score {
		q.request.keepScores(o)
	}
	switch {
	case !p.sample:
	case q.request.Embed != "":
		ev := e.newEvent(q.stream)
		q.begin(ev)
		ev.Embedding, ev.Finish = slices.Clone(o.Vector), FinishStop
		e.countToken(q, ev)
		e.results = append(e.results, sched.Result{ID: q.id, Done: true})
		e.finish(q)
	default:
		e.takeTokens(q, o)
	}
}

// takeTokens discards tokens after the text's end.
func (e *loop) takeTokens(q *sequence, o *worker.Out) {
	e.clearSuspect(q)
	at := len(e.tokens)
	done := false
	for i := range o.Tokens {
		ev := e.newEvent(q.stream)
		if err := q.next(ev, &o.Tokens[i], e.Engine); err != nil {
			e.outbox = e.outbox[:len(e.outbox)-1]
			e.fail(q.stream, &StepError{Err: err})
			return
		}
		e.countToken(q, ev)
		e.tokens = append(e.tokens, o.Tokens[i].Token)
		if done = ev.Finish != ""; done {
			break
		}
	}
	e.results = append(e.results, sched.Result{ID: q.id, Tokens: e.tokens[at:], Done: done})
	if done {
		e.finish(q)
	}
}

// keepScores drops scores that come again after a preemption.
func (r *accepted) keepScores(o *worker.Out) {
	for i := range o.Scores {
		if o.ScoresFrom+i != len(r.scores)+1 {
			continue
		}
		c := o.Scores[i]
		c.Top = slices.Clone(c.Top)
		r.scores = append(r.scores, c)
	}
}
