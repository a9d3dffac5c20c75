package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

type device struct {
	node int
	used api.Bytes
	// holders is how many instances are awake, rising or falling on it.
	holders int
	since   time.Duration // when the first of them came
	held    time.Duration // before since
	gone    bool          // its node has left
}

type state int

const (
	rising state = iota // starting or waking
	awake
	falling // draining, going to sleep or stopping
	asleep
	gone
)

// unit is one instance, in any policy.
type unit struct {
	f       *function
	devices []int
	state   state
	level   api.Level
	under   api.Level // of a suspended one: its sleep
	since   time.Duration
	running int
	batch   batch
	// closed: it takes no more requests; drained is called when it has none.
	closed  bool
	drained func()
	// booked on its node's host and on each device
	host, dev api.Bytes
	lastUse   time.Duration
	slept     bool // its process has been asleep
	rest      time.Duration
	loaded    time.Duration // the duration of its start, without the pod's
}

// span is a part of a unit's life, for pictures.
type span struct {
	devices  []int
	model    int
	state    state
	from, to time.Duration
}

// account changes u's memory. Exceeding the capacity is an error of the policy and ends the run.
func (w *world) account(u *unit, host, dev api.Bytes) {
	node := w.devices[u.devices[0]].node
	w.hosts[node] += host - u.host
	if w.hosts[node] > w.cfg.HostMemory && w.err == nil {
		w.err = fmt.Errorf("at %s %s is to take %s of the host memory of node %d, which has %s less than that",
			w.now, u.f.m.Name, host, node, w.hosts[node]-w.cfg.HostMemory)
	}
	for _, d := range u.devices {
		dv := &w.devices[d]
		dv.used += dev - u.dev
		if dv.used > w.cfg.DeviceMemory && w.err == nil {
			w.err = fmt.Errorf("at %s %s is to take %s of GPU %d, which has %s less than that",
				w.now, u.f.m.Name, dev, d, dv.used-w.cfg.DeviceMemory)
		}
	}
	u.host, u.dev = host, dev
}

func (w *world) become(u *unit, s state) {
	if w.cfg.Record && u.state != gone && w.now > u.since {
		w.spans = append(w.spans, span{u.devices, u.f.number, u.state, u.since, w.now})
	}
	held, holds := u.holds(), s < asleep
	if u.state == asleep {
		w.sleepers += gib(u.dev*api.Bytes(len(u.devices))) * (w.now - u.since).Hours()
	}
	u.state, u.since = s, w.now
	if held == holds {
		return
	}
	if holds {
		w.hold(u.devices)
	} else {
		w.release(u.devices)
	}
}

func (w *world) hold(devices []int) {
	for _, d := range devices {
		dv := &w.devices[d]
		if dv.holders++; dv.holders == 1 {
			dv.since = w.now
		}
	}
}

func (w *world) release(devices []int) {
	for _, d := range devices {
		dv := &w.devices[d]
		if dv.holders--; dv.holders == 0 {
			dv.held += w.now - dv.since
		}
	}
}

func (u *unit) holds() bool { return u.state < asleep }

func gib(b api.Bytes) float64 { return float64(b) / float64(api.GiB) }

// start creates an instance of f, awake after delay and the model's load time. done may be nil, here and below.
func (w *world) start(f *function, devices []int, delay time.Duration, done func()) *unit {
	u := w.create(f, devices)
	u.loaded = f.m.Load
	node := &w.nodes[w.devices[devices[0]].node]
	if node.cold && !node.files[f] {
		u.loaded += f.m.Fetch
	}
	w.raise(u, delay+u.loaded, f.m.Host, false, func() {
		if node.cold {
			node.files[f] = true
		}
		call(done)
	})
	return u
}

func call(done func()) {
	if done != nil {
		done()
	}
}

// create creates an instance in no state yet.
func (w *world) create(f *function, devices []int) *unit {
	if n := w.devices[devices[0]].node; w.nodes[n].gone && w.err == nil {
		w.err = fmt.Errorf("at %s %s is to start on node %d, which has left", w.now, f.m.Name, n)
	}
	u := &unit{f: f, devices: devices, state: gone, since: w.now, lastUse: w.now}
	u.batch.m = f.m
	u.batch.timer = timer{c: &w.clock, do: func() { w.work(u) }}
	f.units = append(f.units, u)
	return u
}

// raise makes u awake after took. host is its host memory then; hot: it counts as a wake.
func (w *world) raise(u *unit, took time.Duration, host api.Bytes, hot bool, done func()) {
	u.closed = false
	w.become(u, rising)
	w.account(u, host, u.f.m.Device)
	if hot {
		w.wakes++
	} else {
		w.starts++
	}
	w.after(took, func() {
		if u.state != rising { // it was stopped on the way
			return
		}
		w.become(u, awake)
		u.lastUse = w.now
		call(done)
		w.feed(u.f)
	})
}

// park makes u asleep at once, for policies with their own mechanism. It must have no requests.
func (w *world) park(u *unit, host, dev api.Bytes) {
	u.closed = true
	w.become(u, asleep)
	w.account(u, host, dev)
}

func (w *world) wake(u *unit, delay time.Duration, done func()) {
	if u.state != gone {
		w.raise(u, delay+u.wakeTime(), u.f.m.Host, true, done)
	}
}

func (u *unit) wakeTime() time.Duration {
	if u.level == api.Suspended {
		return u.f.m.Wake[u.under] + u.f.m.transfer(u.under, restoreRate)
	}
	return u.f.m.Wake[u.level]
}

// Rates of the driver in GiB per second, from GPU to host memory and back.
const (
	suspendRate = 10
	restoreRate = 15
)

// transfer returns how long the driver copies what a sleeper at level has on its GPUs.
func (m *Model) transfer(level api.Level, rate float64) time.Duration {
	return seconds(gib(m.Residue[level]) / rate)
}

// drain closes u to new requests, and calls then when it has none, unless u is gone.
func (w *world) drain(u *unit, then func()) {
	if u.state == gone {
		return
	}
	u.closed = true
	w.become(u, falling)
	if u.running > 0 {
		u.drained = then
		return
	}
	then()
}

func (w *world) sleep(u *unit, level api.Level, done func()) {
	took := u.f.m.Sleep
	if first := u.f.m.FirstSleep; first > 0 && !u.slept {
		took = first
	}
	if level == api.Level2 { // nothing is copied
		took = min(took, 300*time.Millisecond)
	}
	if u.state == asleep { // deeper: nothing is copied
		took = w.cfg.Hop
	}
	to := level
	if level == api.Suspended {
		if to = api.Level1; u.state == asleep {
			to = u.level
		}
		took += u.f.m.transfer(to, suspendRate)
	}
	w.drain(u, func() {
		w.after(took, func() {
			if u.state == gone {
				return
			}
			u.level, u.under, u.slept, u.rest = level, to, true, took
			w.become(u, asleep)
			if host, dev := u.f.m.HostResidue[to], u.f.m.Residue[to]; level == api.Suspended {
				w.account(u, host+dev*api.Bytes(len(u.devices)), 0)
			} else {
				w.account(u, host, dev)
			}
			call(done)
		})
	})
}

func (w *world) remove(u *unit) {
	w.become(u, gone)
	w.account(u, 0, 0)
	u.f.units = slices.DeleteFunc(u.f.units, func(v *unit) bool { return v == u })
}

func (w *world) stop(u *unit, done func()) {
	w.drain(u, func() {
		w.after(u.f.m.Stop, func() {
			if u.state == gone {
				return
			}
			w.remove(u)
			call(done)
		})
	})
}

// whenIdle calls do if u, which is idle, stays so for keep.
func (w *world) whenIdle(u *unit, keep time.Duration, do func()) {
	if keep == Forever {
		return
	}
	idle := u.lastUse
	w.at(idle+keep, func() {
		if u.state == awake && u.running == 0 && u.lastUse == idle && !u.closed {
			do()
		}
	})
}
