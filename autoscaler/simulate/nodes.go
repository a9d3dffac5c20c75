package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Change is a node that leaves with all it had, or a new one in its place, without models' files.
type Change struct {
	At     time.Duration
	Node   int
	Leaves bool
}

// fetchRate is 4 Gbit/s, in GiB per second.
const fetchRate = 0.5

// Churn returns changes of nodes: one leaves about once in every, and another replaces it after away. One always stays.
func Churn(nodes int, length, every, away time.Duration, seed uint64) []Change {
	rng := rand.New(rand.NewPCG(seed, 0xc0de))
	back := make([]time.Duration, nodes)
	var cs []Change
	for at := time.Duration(0); every > 0; {
		if at += time.Duration(rng.ExpFloat64() * float64(every)); at >= length {
			break
		}
		n := rng.IntN(nodes)
		there := 0
		for _, b := range back {
			if b <= at {
				there++
			}
		}
		if back[n] > at || there < 2 {
			continue
		}
		back[n] = at + away
		cs = append(cs, Change{At: at, Node: n, Leaves: true}, Change{At: back[n], Node: n})
	}
	slices.SortStableFunc(cs, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	return cs
}

func possible(changes []Change, nodes int) bool {
	gone := make(map[int]bool)
	last := time.Duration(0)
	for _, c := range changes {
		if c.At < last || c.Node < 0 || c.Node >= nodes || c.Leaves == gone[c.Node] {
			return false
		}
		last = c.At
		if c.Leaves {
			gone[c.Node] = true
		} else {
			delete(gone, c.Node)
		}
		if len(gone) == nodes {
			return false
		}
	}
	return true
}

type node struct {
	gone bool
	// earlier machines in this place
	number int
	// cold: it has only the files in files.
	cold  bool
	files map[*function]bool
	// from is when it left, away the sum of earlier absences.
	from, away time.Duration
}

func (w *world) change(c Change) {
	n := &w.nodes[c.Node]
	n.gone = c.Leaves
	for d := range w.devices {
		if dv := &w.devices[d]; dv.node == c.Node {
			dv.gone = c.Leaves
		}
	}
	if !c.Leaves {
		n.number++
		n.cold, n.files = true, make(map[*function]bool)
		n.away += w.now - n.from
		w.controller.joined(c.Node)
		return
	}
	n.from = w.now
	var lost []*unit
	for _, f := range w.functions {
		for _, u := range f.units {
			if w.devices[u.devices[0]].node == c.Node {
				lost = append(lost, u)
			}
		}
	}
	for _, u := range lost {
		w.lose(u)
	}
	for d := range w.devices { // claims without an instance
		if dv := &w.devices[d]; dv.node == c.Node && dv.holders > 0 {
			dv.held += w.now - dv.since
			dv.holders = 0
		}
	}
	w.controller.left(c.Node, lost)
	for k, u := range lost {
		if !slices.ContainsFunc(lost[:k], func(v *unit) bool { return v.f == u.f }) {
			w.feed(u.f)
		}
	}
}

// Requests without a token go back to the queue; those that have begun break off.
func (w *world) lose(u *unit) {
	f := u.f
	f.count(w.now)
	for _, r := range u.batch.drain() {
		w.end(r)
		w.broken++
	}
	f.running -= u.running
	f.queue = append(f.queue, u.batch.prefill...)
	slices.SortStableFunc(f.queue, func(r, s *request) int { return cmp.Compare(r.at, s.at) })
	u.batch.prefill, u.running, u.drained = nil, 0, nil
	u.batch.timer.stop()
	w.renew(f)
	w.remove(u)
}

// hours returns the available GPU-hours.
func (w *world) hours() float64 {
	var sum time.Duration
	for _, d := range w.devices {
		n := &w.nodes[d.node]
		sum += w.now - n.away
		if n.gone {
			sum -= w.now - n.from
		}
	}
	return sum.Hours()
}

// crowd updates how many busy instances share each GPU.
func (w *world) crowd() {
	if !w.shares {
		return
	}
	busy := make([]int, len(w.devices))
	for _, f := range w.functions {
		for _, v := range f.units {
			for _, d := range v.devices {
				if v.running > 0 {
					busy[d]++
				}
			}
		}
	}
	for _, f := range w.functions {
		for _, v := range f.units {
			n := 1
			for _, d := range v.devices {
				n = max(n, busy[d])
			}
			v.batch.share(n, w.now)
		}
	}
}

// pause removes and returns u's requests that have begun to answer; the others go back to the queue.
func (w *world) pause(u *unit) []*request {
	f, b := u.f, &u.batch
	f.count(w.now)
	b.advance(w.now)
	paused := b.drain()
	for _, r := range paused {
		r.mark -= b.tokens
	}
	f.running -= len(b.prefill)
	f.queue = append(slices.Clone(b.prefill), f.queue...)
	b.prefill, u.running = nil, 0
	b.timer.stop()
	w.renew(f)
	w.crowd()
	return paused
}

func (w *world) resume(u *unit, paused []*request) {
	u.batch.advance(w.now)
	for _, r := range paused {
		r.mark += u.batch.tokens
		u.batch.decode.Put(r)
	}
	if u.running += len(paused); u.running > 0 {
		w.crowd()
		u.batch.arm()
	}
}

// breakOff ends requests of f that have begun.
func (w *world) breakOff(f *function, rs []*request) {
	f.count(w.now)
	for _, r := range rs {
		w.end(r)
		w.broken++
	}
	f.running -= len(rs)
}
