package simulate

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// prewarm is WarmServe (Lou et al., arXiv 2512.09472), simplified. Loads repeat daily, so it predicts for each window
// of five minutes how many instances a model will need, and copies the weights of such models to idle GPUs, several to
// one. The first one requested takes the GPU, and the others' weights are dropped.
//
//  1. Prediction: the larger need of the previous window and of the same one yesterday.
//  2. Models that need more get copies, on the worker with the fewest other predicted ones. Others give way, the least
//     recently used first.
//  3. A request without an instance takes a worker with a copy, else a free one, else the longest idle one, or waits.
//  4. An instance unused for Keep frees its GPU, and its weights stay.
//
// Copies do not hold a GPU here; their memory is in [Result.SleeperGiBHours]. Simplified: a busy GPU gets no copies,
// while in the source it lends parts of its KV cache.
type prewarm struct {
	w         *world
	p         Policy
	caches    *caches
	workers   []*universal
	functions []*foreseen // by the world's number
	window    int
	pending   []*function // that found no worker
}

const (
	prewarmWindow  = 5 * time.Minute
	prewarmWindows = int(24 * time.Hour / prewarmWindow)
	// prewarmSwitch is how long it takes to bring up an instance whose weights are there.
	prewarmSwitch = 300 * time.Millisecond
)

type foreseen struct {
	f *function
	// The most instances needed at once: need by window of the day, last in the previous window, now in this one.
	need [prewarmWindows]int
	last int
	now  int
	// expected is the prediction for this window.
	expected int
}

type universal struct {
	worker
	copies []*weightsCopy
}

type weightsCopy struct {
	u     *unit
	ready time.Duration
}

func newPrewarm(w *world, p Policy) controller {
	c := &prewarm{w: w, p: p, caches: newCaches(w)}
	for _, k := range workersOf(w) {
		c.workers = append(c.workers, &universal{worker: *k})
	}
	for _, f := range w.functions {
		c.functions = append(c.functions, &foreseen{f: f})
	}
	w.after(prewarmWindow, c.turnWindow)
	return c
}

func (c *prewarm) joined(int) { c.retry() }

func (c *prewarm) left(node int, _ []*unit) {
	c.caches.forget(node)
	for _, k := range c.workers {
		if k.node == node {
			k.u, k.copies = nil, nil
		}
	}
}

func (c *prewarm) arrived(f *function) { c.changed(f) }

func (c *prewarm) changed(f *function) {
	c.functions[f.number].now = max(c.functions[f.number].now, min(f.demand(), c.w.cfg.MaxScale))
	c.serve(f)
	for _, k := range c.workers {
		if k.u != nil && k.u.f == f && k.u.state == awake && k.u.running == 0 {
			c.expire(k)
			c.retry()
		}
	}
}

// turnWindow does 1 and 2.
func (c *prewarm) turnWindow() {
	slot := c.window % prewarmWindows
	c.window++
	var short []*foreseen
	for _, v := range c.functions {
		v.last, v.need[slot] = v.now, v.now
		v.now = min(v.f.demand(), c.w.cfg.MaxScale)
		v.expected = max(v.last, v.need[c.window%prewarmWindows])
		if v.expected > c.has(v.f) {
			short = append(short, v)
		}
	}
	slices.SortStableFunc(short, func(a, b *foreseen) int { return (b.expected - c.has(b.f)) - (a.expected - c.has(a.f)) })
	for _, v := range short {
		for c.has(v.f) < v.expected && c.copy(v) {
		}
	}
	c.w.after(prewarmWindow, c.turnWindow)
}

func (c *prewarm) has(f *function) (n int) {
	for _, k := range c.workers {
		if k.u != nil && k.u.f == f || k.copyOf(f) != nil {
			n++
		}
	}
	return n
}

func (k *universal) copyOf(f *function) *weightsCopy {
	for _, w := range k.copies {
		if w.u.f == f {
			return w
		}
	}
	return nil
}

func (c *prewarm) others(k *universal, f *function) (n int) {
	for _, w := range k.copies {
		if w.u.f != f && c.functions[w.u.f.number].expected > 0 {
			n++
		}
	}
	return n
}

// best returns the idle worker that may allows with the fewest predicted copies.
func (c *prewarm) best(f *function, may func(k *universal) bool) (best *universal) {
	for _, k := range c.workers {
		if k.u == nil && !c.w.nodes[k.node].gone && may(k) && (best == nil || c.others(k, f) < c.others(best, f)) {
			best = k
		}
	}
	return best
}

// copy makes a copy for v, if there is a place.
func (c *prewarm) copy(v *foreseen) bool {
	m := v.f.m
	size := copySize(m)
	k := c.best(v.f, func(k *universal) bool {
		if k.copyOf(v.f) != nil {
			return false
		}
		used := size // and the copies that can't give way
		for _, w := range k.copies {
			if c.functions[w.u.f.number].expected > 0 {
				used += w.u.dev
			}
		}
		return used <= c.w.cfg.DeviceMemory
	})
	if k == nil || size > c.w.cfg.DeviceMemory {
		return false
	}
	for {
		used := size
		for _, w := range k.copies {
			used += w.u.dev
		}
		if used <= c.w.cfg.DeviceMemory {
			break
		}
		c.drop(k, c.oldest(k))
	}
	took, _ := c.caches.load(v.f, k.node)
	u := c.w.create(v.f, k.on(m))
	c.w.park(u, 0, size)
	k.copies = append(k.copies, &weightsCopy{u: u, ready: c.w.now + took})
	return true
}

// oldest returns the least recently used copy that is not predicted.
func (c *prewarm) oldest(k *universal) *weightsCopy {
	var oldest *weightsCopy
	for _, w := range k.copies {
		if c.functions[w.u.f.number].expected == 0 && (oldest == nil || w.u.lastUse < oldest.u.lastUse) {
			oldest = w
		}
	}
	return oldest
}

func (c *prewarm) drop(k *universal, w *weightsCopy) {
	c.w.remove(w.u)
	k.copies = slices.DeleteFunc(k.copies, func(o *weightsCopy) bool { return o == w })
}

// serve does 3.
func (c *prewarm) serve(f *function) {
	live := f.live()
	for len(f.queue) > 0 && live < min(f.demand(), c.w.cfg.MaxScale) {
		k := c.best(f, func(k *universal) bool { return k.copyOf(f) != nil })
		if k == nil {
			k = c.best(f, func(*universal) bool { return true })
		}
		if k == nil && live == 0 {
			k = c.longestIdle()
		}
		if k == nil {
			if live == 0 && !slices.Contains(c.pending, f) {
				c.pending = append(c.pending, f)
			}
			return
		}
		c.run(f, k)
		live++
	}
}

// longestIdle frees and returns the worker that has been idle for longest.
func (c *prewarm) longestIdle() (oldest *universal) {
	for _, k := range c.workers {
		if k.u != nil && k.u.state == awake && k.u.running == 0 && (oldest == nil || k.u.lastUse < oldest.u.lastUse) {
			oldest = k
		}
	}
	if oldest != nil {
		c.w.swaps++
		c.w.remove(oldest.u)
		oldest.u = nil
	}
	return oldest
}

func (c *prewarm) run(f *function, k *universal) {
	own := k.copyOf(f)
	for _, w := range slices.Clone(k.copies) {
		if w != own {
			c.drop(k, w)
		}
	}
	k.copies = nil
	if own == nil {
		took, hot := c.caches.load(f, k.node)
		k.u = c.w.create(f, k.on(f.m))
		c.w.raise(k.u, took, 0, hot, nil)
		return
	}
	k.u = own.u
	c.w.raise(k.u, max(0, own.ready-c.w.now)+prewarmSwitch, 0, true, nil)
}

// expire does 4.
func (c *prewarm) expire(k *universal) {
	u := k.u
	c.w.whenIdle(u, c.p.Keep, func() {
		if k.u == u {
			c.w.park(u, 0, copySize(u.f.m))
			k.u, k.copies = nil, []*weightsCopy{{u: u}}
			c.retry()
		}
	})
}

// copySize is for each GPU.
func copySize(m *Model) api.Bytes { return m.weights()/api.Bytes(m.GPUs) + m.Residue[api.Level1] }

func (c *prewarm) retry() {
	pending := c.pending
	c.pending = nil
	for _, f := range pending {
		c.serve(f)
	}
}
