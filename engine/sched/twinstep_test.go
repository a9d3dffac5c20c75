package sched_test

import (
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

func (w *twin) put(q *twinSeq, n int) {
	sample := q.computed+n == len(q.tokens)+q.flying
	w.chosen = append(w.chosen, q)
	q.step, q.from = w.step, q.computed
	q.computed += n
	w.tokens += n
	w.flows[flowOf(q)] += max(0, q.computed-q.high)
	q.high = max(q.high, q.computed)
	w.items = append(w.items, fmt.Sprint(q.id, " at ", q.from, " to ", q.computed, " in ", q.blocks, " new ", len(q.blocks)-q.sent, " sample ", sample))
	q.sent, q.seen = len(q.blocks), true
	if sample {
		if !q.req.Pool {
			q.flying++
		}
		last := len(w.flights) - 1
		w.flights[last] = append(w.flights[last], twinEntry{q})
	}
}

// name registers what q has computed and knows.
func (w *twin) name(q *twinSeq) {
	if w.cfg.Prefix {
		for i, h := range block.Chain(nil, q.req.Root, q.tokens[:min(len(q.tokens), q.computed)], w.pool.Size()) {
			if i >= q.named { // once: a block whose name was taken stays without
				w.pool.Register(q.blocks[i], h)
				q.named++
			}
		}
	}
}

func (w *twin) release(q *twinSeq) {
	w.name(q)
	w.pool.Free(q.blocks...)
	q.blocks, q.computed, q.sent, q.named, q.running = nil, 0, 0, 0, false
}

func (w *twin) preempt(q *twinSeq) {
	w.release(q)
	w.end(q)
	q.since = w.step
	w.stats.Preemptions++
}

func (w *twin) update(results []sched.Result) {
	f := w.flights[0]
	w.flights = w.flights[1:]
	for _, e := range f {
		if e.q.gone {
			continue
		}
		i := slices.IndexFunc(results, func(r sched.Result) bool { return r.ID == e.q.id })
		if e.q.req.Pool {
			w.drop(e.q)
			continue
		}
		e.q.flying--
		e.q.tokens = append(e.q.tokens, results[i].Tokens...)
		if results[i].Done || len(e.q.tokens) == e.q.req.Max {
			w.drop(e.q)
		}
	}
}

func (w *twin) abort(id sched.ID) {
	i := slices.IndexFunc(w.all, func(q *twinSeq) bool { return q.id == id })
	w.drop(w.all[i])
}

func (w *twin) drop(q *twinSeq) {
	w.release(q)
	q.gone = true
	w.all = slices.DeleteFunc(w.all, func(o *twinSeq) bool { return o == q })
	if g := q.group; g != nil {
		g.members = slices.DeleteFunc(g.members, func(o *twinSeq) bool { return o == q })
		delete(g.parked, q)
		if g.leader == q {
			g.leader = nil
			clear(g.parked)
		}
	}
	w.end(q)
}

// end has the worker forget q.
func (w *twin) end(q *twinSeq) {
	if q.seen {
		w.ends = append(w.ends, q.id)
	}
	q.seen = false
}
