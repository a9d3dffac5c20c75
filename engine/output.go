package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/wire"
)

// receive takes the output of a batch.
//
//  1. One of a batch that was given up, by a failed step or a sleep, is nothing.
//  2. One that does not fit its batch ends the worker, before anything of it is believed.
//  3. A failed step ends all requests; several in a row end the worker too.
//  4. Else each sequence gets what is its own, and the scheduler the tokens.
func (e *Engine) receive(out *wire.Output) {
	if len(e.flights) == 0 || e.flights[0].step != out.Step { // 1
		return
	}
	if err := e.fits(&e.flights[0], out); err != nil { // 2
		err = fmt.Errorf("the worker's answer to step %d makes no sense: %w", out.Step, err)
		e.worker.Fail(err)
		e.lose(err) // before it says more; Event.Lost and Event.Up follow
		return
	}
	f := e.land()
	if out.Error != "" { // 3
		err := &StepError{Err: errors.New(out.Error)}
		e.count(f.tokens, err)
		e.giveUp()
		e.failAll(err)
		if e.failed++; e.failed >= maxFailures { // a new worker may do better
			e.failed = 0
			e.worker.Fail(err)
			e.lose(err)
		}
		return
	}
	e.failed = 0
	e.count(f.tokens, nil)
	e.occupied(out.Busy)
	e.results, e.tokens = e.results[:0], e.tokens[:0]
	next := 0
	for i := range f.items {
		p := &f.items[i]
		if !reports(p, out, next) {
			continue
		}
		o := &out.Items[next]
		next++
		if p.q.live { // else it ended meanwhile
			e.take(p, o)
		}
	}
	e.sched.Update(out.Step, e.results)
	for began := time.Now(); e.cfg.HostWork > 0 && time.Since(began) < e.cfg.HostWork; { //nolint:revive // it has to take the processor's time
	}
}

// reports tells whether the next of the output's items is that of p: one is due, or an error came.
func reports(p *part, out *wire.Output, next int) bool {
	return p.sample || p.score || next < len(out.Items) && out.Items[next].ID == uint64(p.q.id)
}

// fits compares an output with its batch.
func (e *Engine) fits(f *flight, out *wire.Output) error {
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
			return fmt.Errorf("it says nothing of sequence %d", p.q.id)
		}
		if err := e.fitsItem(p, &out.Items[next]); err != nil {
			return fmt.Errorf("sequence %d: %w", p.q.id, err)
		}
		next++
	}
	if next < len(out.Items) {
		return fmt.Errorf("it speaks of sequence %d", out.Items[next].ID)
	}
	return nil
}

func (e *Engine) fitsItem(p *part, o *wire.Out) error {
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

// take gives a sequence what the worker says of it.
func (e *Engine) take(p *part, o *wire.Out) {
	q := p.q
	if o.Error != "" {
		e.fail(q.stream, &StepError{Err: errors.New(o.Error)})
		return
	}
	if p.score {
		q.request.keepScores(o)
	}
	switch {
	case !p.sample:
	case q.request.Embed != "":
		ev := e.address(q.stream)
		q.begin(ev)
		ev.Embedding, ev.Finish = slices.Clone(o.Vector), FinishStop
		e.countToken(q, ev)
		e.results = append(e.results, sched.Result{ID: q.id, Done: true})
		e.finish(q)
	default:
		e.takeTokens(q, o)
	}
}

// takeTokens makes events of tokens. Those after the last one of the text are discarded.
func (e *Engine) takeTokens(q *sequence, o *wire.Out) {
	e.acquit(q)
	at := len(e.tokens)
	done := false
	for i := range o.Tokens {
		ev := e.address(q.stream)
		if err := q.next(ev, &o.Tokens[i], e); err != nil {
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

// keepScores adds scores that are not known from before a preemption.
func (r *accepted) keepScores(o *wire.Out) {
	for i := range o.Scores {
		if o.ScoresFrom+i != len(r.scores)+1 {
			continue
		}
		c := o.Scores[i]
		c.Top = slices.Clone(c.Top)
		r.scores = append(r.scores, c)
	}
}
