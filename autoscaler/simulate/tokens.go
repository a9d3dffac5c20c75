package simulate

import (
	"slices"
	"time"
)

// tokens is Aegaeon (Xiang et al., SOSP 2025), simplified: models share GPUs by turns between tokens. A model with
// requests joins the worker with the fewest models. A worker gives each a turn of some seconds, stops it between two
// tokens, keeps its requests' KV cache in host memory, and copies the next model's weights from there. A switch takes
// as long as a restore and a wake from level 1.
//
// Simplified: prompts and answers run on the same workers, the turn is constant, KV caches are not counted and stay
// with their worker. An idle worker is released after Keep; the source keeps the pool.
type tokens struct {
	w       *world
	p       Policy
	caches  *caches
	workers []*turns
}

const turnLength = 4 * time.Second

type turns struct {
	worker
	list  []*turn       // the first one has the turn
	since time.Duration // when the turn began, or it became idle
	step  timer         // the end of a turn, or of an idle worker
}

type turn struct {
	f      *function
	paused []*request // have begun to answer
}

func newTokens(w *world, p Policy) controller {
	t := &tokens{w: w, p: p, caches: newCaches(w)}
	for _, k := range workersOf(w) {
		t.workers = append(t.workers, &turns{worker: *k, step: timer{c: &w.clock}})
	}
	return t
}

func (t *tokens) joined(int) {
	for _, f := range t.w.functions {
		t.changed(f)
	}
}

func (t *tokens) left(node int, _ []*unit) {
	t.caches.forget(node)
	for _, k := range t.workers {
		if k.node != node {
			continue
		}
		list := k.list
		k.u, k.list = nil, nil
		k.step.stop()
		for _, own := range list {
			t.w.breakOff(own.f, own.paused)
		}
		for _, own := range list {
			t.changed(own.f)
		}
	}
}

func (t *tokens) arrived(f *function) { t.changed(f) }

// changed gives f a place if it has none, and ends its turn if due.
func (t *tokens) changed(f *function) {
	places := 0
	for _, k := range t.workers {
		if k.u != nil && k.u.f == f && k.u.running > 0 && k.place(f) == nil { // it was idle
			k.list = append(k.list, &turn{f: f})
			k.since = t.w.now
		}
		if k.place(f) != nil {
			places++
		}
	}
	more := len(f.queue) > places*f.m.Concurrency
	if len(f.queue) > 0 && (places == 0 || more && places < t.w.cfg.MaxScale) {
		if k := t.choose(f); k != nil && (places == 0 || len(k.list) == 0) {
			k.list = append(k.list, &turn{f: f})
			if len(k.list) == 1 {
				k.since = t.w.now
			}
		}
	}
	for _, k := range t.workers {
		if k.place(f) != nil {
			t.proceed(k)
		}
	}
}

func (k *turns) place(f *function) *turn {
	for _, own := range k.list {
		if own.f == f {
			return own
		}
	}
	return nil
}

// choose returns the worker with the fewest models, preferably one that runs f, then one that is held.
func (t *tokens) choose(f *function) (best *turns) {
	rank := func(k *turns) int {
		switch {
		case k.u != nil && k.u.f == f:
			return 3 * len(k.list)
		case k.u != nil:
			return 3*len(k.list) + 1
		}
		return 3*len(k.list) + 2
	}
	for _, k := range t.workers {
		if !t.w.nodes[k.node].gone && k.place(f) == nil && (best == nil || rank(k) < rank(best)) {
			best = k
		}
	}
	return best
}

// proceed does the next step on k:
//
//  1. a model without work loses its place, and a worker without models is released after a while
//  2. something is loading, or a prompt is processed: wait
//  3. the first one's turn is over: the next one's begins
//  4. the first one is not loaded: switch to it
//  5. else repeat when its turn is over
func (t *tokens) proceed(k *turns) {
	w := t.w
	k.list = slices.DeleteFunc(k.list, func(own *turn) bool { // 1
		busy := k.u != nil && k.u.f == own.f && (k.u.running > 0 || k.u.state == rising)
		return !busy && len(own.f.queue) == 0 && len(own.paused) == 0
	})
	if len(k.list) == 0 {
		t.idle(k)
		return
	}
	if k.u != nil && k.u.state == rising { // 2
		return
	}
	if own := k.list[0]; k.u != nil && k.u.f == own.f && len(k.list) > 1 && w.now-k.since >= turnLength { // 3
		k.u.closed = true
		if len(k.u.batch.prefill) > 0 {
			t.again(k, k.u.batch.ready)
			return
		}
		own.paused = w.pause(k.u)
		k.list = append(k.list[1:], own)
	}
	if k.u == nil || k.u.f != k.list[0].f { // 4
		t.switchTo(k, k.list[0])
		return
	}
	if len(k.list) > 1 { // 5
		t.again(k, k.since+turnLength)
	} else if k.u.closed { // the others have left while its turn ended
		k.u.closed, k.since = false, w.now
		w.feed(k.u.f)
	}
}

func (t *tokens) again(k *turns, at time.Duration) {
	k.step.do = func() { t.proceed(k) }
	k.step.reset(at)
}

func (t *tokens) idle(k *turns) {
	if k.u == nil || t.p.Keep == Forever || k.u.state == rising {
		return
	}
	k.step.do = func() {
		if len(k.list) == 0 && k.u != nil && k.u.running == 0 {
			t.w.remove(k.u)
			k.u = nil
		}
	}
	k.step.reset(t.w.now + t.p.Keep)
}

func (t *tokens) switchTo(k *turns, own *turn) {
	if k.u != nil {
		t.w.swaps++
		t.w.remove(k.u)
	}
	k.step.stop()
	took, hot := t.caches.load(own.f, k.node)
	k.u = t.w.create(own.f, k.on(own.f.m))
	t.w.raise(k.u, took, 0, hot, func() {
		k.since = t.w.now
		t.w.resume(k.u, own.paused)
		own.paused = nil
	})
}
