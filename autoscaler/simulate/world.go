package simulate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

type request struct {
	number         int
	f              *function
	at             time.Duration
	prompt, output int
	mark           float64 // see batch
	slot           int     // in its batch
	cold           bool    // no instance was awake when it came
	ended          bool
}

type function struct {
	number  int
	m       *Model
	queue   []*request // the oldest first
	running int
	units   []*unit // in the order of creation
	expiry  timer   // refuses the oldest
	// area is the integral of waiting and running requests until at.
	area float64
	at   time.Duration
}

// Call count before the number of requests changes.
func (f *function) count(now time.Duration) {
	f.area += float64(len(f.queue)+f.running) * (now - f.at).Seconds()
	f.at = now
}

// demand returns how many instances the requests fill.
func (f *function) demand() int {
	return (len(f.queue) + f.running + f.m.Concurrency - 1) / f.m.Concurrency
}

// live counts rising instances, and awake ones that take requests.
func (f *function) live() (n int) {
	for _, u := range f.units {
		if u.state == rising || u.state == awake && !u.closed {
			n++
		}
	}
	return n
}

// controller is a running policy. It acts on the world.
type controller interface {
	// arrived is called after a request came: it waits, or runs.
	arrived(f *function)
	// changed is called after requests ended, left or began to run.
	changed(f *function)
	// left is called when a node has left with its instances, lost. Their pending callbacks are dropped, and changed is
	// called for each of their functions.
	left(node int, lost []*unit)
	// joined is called when a new node has come in place of one that left.
	joined(node int)
}

type world struct {
	clock
	cfg        Config
	controller controller
	functions  []*function
	devices    []device
	nodes      []node
	shares     bool        // GPUs may have several instances awake
	hosts      []api.Bytes // in use, by node
	open       int         // not ended
	starts     int
	wakes      int
	swaps      int
	sleepers   float64
	served     int
	refused    int
	broken     int             // lost after their first token
	ends       []time.Duration // times to last token of served requests
	first      []time.Duration // times to first token; Hold for refused requests
	answers    []answer        // in the order of the trace
	spans      []span
	waits      []mark
	err        error
}

type answer struct {
	first time.Duration
	cold  bool
}

// mark is the number of waiting requests from a time on.
type mark struct {
	at      time.Duration
	waiting int
}

func newWorld(cfg Config) *world {
	w := &world{cfg: cfg, devices: make([]device, cfg.Devices), nodes: make([]node, cfg.Nodes), hosts: make([]api.Bytes, cfg.Nodes)}
	for d := range w.devices {
		w.devices[d].node = d * cfg.Nodes / cfg.Devices
	}
	for k := range cfg.Models {
		f := &function{number: k, m: &cfg.Models[k]}
		f.expiry = timer{c: &w.clock, do: func() { w.expire(f) }}
		w.functions = append(w.functions, f)
		w.shares = w.shares || 2*f.m.Device <= cfg.DeviceMemory
	}
	for _, c := range cfg.Changes {
		w.at(c.At, func() { w.change(c) })
	}
	return w
}

func (w *world) run(ctx context.Context, trace Trace, horizon time.Duration) error {
	w.answers = make([]answer, len(trace))
	byName := make(map[api.ModelName]*function, len(w.functions))
	for _, f := range w.functions {
		byName[f.m.Name] = f
	}
	w.at(horizon, func() {})
	for k, n := 0, 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		next, any := w.next()
		switch {
		case w.err != nil:
			return w.err
		case k < len(trace) && (!any || trace[k].At <= next):
			r := trace[k]
			w.now = r.At
			w.arrive(&request{number: k, f: byName[r.Model], at: r.At, prompt: r.Prompt, output: r.Output})
			k++
		case k == len(trace) && w.open == 0 && w.now >= horizon:
			return nil
		case !any:
			return fmt.Errorf("at %s %d requests wait and nothing more happens", w.now, w.open)
		default:
			w.step()
		}
	}
}

func (w *world) arrive(r *request) {
	f := r.f
	w.open++
	r.cold = !slices.ContainsFunc(f.units, func(u *unit) bool { return u.state == awake && !u.closed })
	f.count(w.now)
	f.queue = append(f.queue, r)
	if len(f.queue) == 1 {
		f.expiry.reset(w.now + w.cfg.Hold)
	}
	w.dispatch(f)
	w.controller.arrived(f)
	w.noteWaiting()
}

func (w *world) feed(f *function) {
	w.dispatch(f)
	w.controller.changed(f)
	w.noteWaiting()
}

// dispatch sends waiting requests to the least busy instances.
func (w *world) dispatch(f *function) {
	sent := 0
	for sent < len(f.queue) {
		var to *unit
		for _, u := range f.units {
			if u.state == awake && !u.closed && u.running < f.m.Concurrency && (to == nil || u.running < to.running) {
				to = u
			}
		}
		if to == nil {
			break
		}
		r := f.queue[sent]
		sent++
		f.running++
		if to.running++; to.running == 1 {
			w.crowd()
		}
		to.lastUse = w.now
		to.batch.advance(w.now)
		to.batch.add(r, w.now)
	}
	if sent > 0 {
		f.queue = slices.Delete(f.queue, 0, sent)
		w.renew(f)
	}
}

// renew sets when the oldest waiting request is refused.
func (w *world) renew(f *function) {
	if len(f.queue) == 0 {
		f.expiry.stop()
		return
	}
	f.expiry.reset(f.queue[0].at + w.cfg.Hold)
}

func (w *world) work(u *unit) {
	done := u.batch.step(w.now, func(r *request, d time.Duration) {
		w.answered(r, w.now+d-r.at)
	})
	if len(done) == 0 {
		return
	}
	for _, r := range done {
		w.end(r)
		w.served++
		w.ends = append(w.ends, w.now-r.at)
	}
	u.f.count(w.now)
	u.f.running -= len(done)
	if u.running -= len(done); u.running == 0 {
		w.crowd()
	}
	u.lastUse = w.now
	w.feed(u.f)
	if then := u.drained; u.running == 0 && then != nil {
		u.drained = nil
		then()
	}
}

func (w *world) answered(r *request, first time.Duration) {
	w.first = append(w.first, first)
	w.answers[r.number] = answer{first, r.cold}
}

func (w *world) expire(f *function) {
	n := 0
	for n < len(f.queue) && f.queue[n].at+w.cfg.Hold <= w.now {
		n++
	}
	w.refuse(f, n)
	w.controller.changed(f)
	w.noteWaiting()
}

// refuse refuses the n oldest waiting requests of f. They count with the longest time to first token, so that refusing
// early improves no result.
func (w *world) refuse(f *function, n int) {
	f.count(w.now)
	for _, r := range f.queue[:n] {
		w.end(r)
		w.refused++
		w.answered(r, w.cfg.Hold)
	}
	f.queue = slices.Delete(f.queue, 0, n)
	w.renew(f)
}

func (w *world) end(r *request) {
	if r.ended {
		w.err = fmt.Errorf("at %s request %d ended twice", w.now, r.number)
	}
	r.ended = true
	w.open--
}

func (w *world) noteWaiting() {
	if !w.cfg.Record {
		return
	}
	n := 0
	for _, f := range w.functions {
		n += len(f.queue)
	}
	if k := len(w.waits); k == 0 || w.waits[k-1].waiting != n {
		w.waits = append(w.waits, mark{w.now, n})
	}
}

// held returns the GPU time held until now.
func (w *world) held() time.Duration {
	var sum time.Duration
	for _, d := range w.devices {
		sum += d.held
		if d.holders > 0 {
			sum += w.now - d.since
		}
	}
	return sum
}
