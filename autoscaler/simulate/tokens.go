package simulate

import (
	"slices"
	"time"
)

// tokens is Aegaeon (Xiang et al., "Aegaeon: Effective GPU Pooling for Concurrent LLM Serving on the Market", SOSP 2025), simplified:
// models share the GPUs of a pool by turns between tokens. A model that is asked for joins the turns of the worker with the
// fewest; a worker that has several models with work gives each a turn of some seconds, and then stops it between two
// tokens, keeps the KV cache of its requests in the host's memory, and copies the weights of the next model from there. Prompts are not
// interrupted. A switch takes what a wake from level 1 takes; nothing is copied away, since the weights stay in the host's memory.
//
// Simplified: prompts and answers run on the same workers, where its source has some for each. The turn is constant, where its source
// derives it from the targets for the time between tokens. KV caches are not counted, and stay with their worker. A worker without work
// is let go after Keep; its source holds the pool.
type tokens struct {
	w       *world
	p       Policy
	caches  *caches
	workers []*turns
}

// turn is how long a model runs while others have work on the same worker.
const turnLength = 4 * time.Second

// turns is a worker with the models that have work on it.
type turns struct {
	worker
	list []*turn // the first one's turn it is
	// since is when the turn began, or the worker fell idle; set counts, so that a timer knows whether it is meant.
	since time.Duration
	set   int
}

// turn is a model's place on a worker.
type turn struct {
	f      *function
	paused []*request // that have begun to answer
}

func newTokens(w *world, p Policy) controller {
	t := &tokens{w: w, p: p, caches: newCaches(w)}
	for _, k := range workersOf(w) {
		t.workers = append(t.workers, &turns{worker: *k})
	}
	return t
}

func (t *tokens) begin() {}

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
		k.set++
		for _, own := range list {
			t.w.breakOff(own.f, own.paused)
		}
		for _, own := range list {
			t.changed(own.f)
		}
	}
}

func (t *tokens) arrived(f *function) { t.changed(f) }

// changed gives f a place where it has none, and goes on where its turn is over.
func (t *tokens) changed(f *function) {
	places := 0
	for _, k := range t.workers {
		if k.u != nil && k.u.f == f && k.u.running > 0 && k.place(f) == nil { // it was idle, and has been given something
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

// choose is the worker with the fewest models; of several one that has f, then one that is held anyway.
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

// proceed does what is next on k:
//
//  1. a model without work loses its place, and a worker without models is let go after a while
//  2. something is loading, or a prompt is read: wait
//  3. the first one's turn is over: the next one's begins
//  4. the first one is not there: switch to it
//  5. else look again when its turn is over
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

// again looks at k at the time.
func (t *tokens) again(k *turns, at time.Duration) {
	k.set++
	n := k.set
	t.w.at(at, func() {
		if k.set == n {
			t.proceed(k)
		}
	})
}

// idle lets go of k when nothing has been asked of it for Keep.
func (t *tokens) idle(k *turns) {
	if k.u == nil || t.p.Keep == Forever || k.u.state == rising {
		return
	}
	k.set++
	n := k.set
	t.w.after(t.p.Keep, func() {
		if k.set == n && len(k.list) == 0 && k.u != nil && k.u.running == 0 {
			t.w.remove(k.u)
			k.u = nil
		}
	})
}

// switchTo has own's model on k.
func (t *tokens) switchTo(k *turns, own *turn) {
	if k.u != nil {
		t.w.swaps++
		t.w.remove(k.u)
	}
	k.set++
	took, hot := t.caches.load(own.f, k.node, engineHost)
	k.u = t.w.create(own.f, k.on(own.f.m))
	t.w.raise(k.u, took, engineHost, hot, func(u *unit) {
		k.since = t.w.now
		t.w.resume(u, own.paused)
		own.paused = nil
	})
}
