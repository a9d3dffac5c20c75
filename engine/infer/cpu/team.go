package cpu

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// spinTime is how long members and callers spin before they park. It is longer than the gaps between the stages of a
// step.
const spinTime = 50 * time.Microsecond

// team runs chunks of work on several goroutines, including the caller's. The first job that needs members starts
// them. run does not wait for a member that has not begun. Only one goroutine may use a team
// at a time, and stop it.
type team struct {
	size    int
	guarded func(address uintptr) bool
	running bool

	// do is the job. run writes it before state; every goroutine that took a chunk from state reads it. run does not
	// return before that chunk is done.
	do func(member, chunk int)
	// state holds the number of chunks in the upper half, and the number of taken ones in the lower. A goroutine
	// takes a chunk by adding one; if the old value was not below the number of chunks, there was none. Each member
	// exceeds it by at most one.
	state atomic.Uint64
	_     [64]byte // keeps state and done, which members write all the time, apart from the rest
	done  atomic.Int32
	_     [64]byte

	fault   atomic.Pointer[error] // the first since the last call of err
	waiting atomic.Bool           // the caller waits for finished
	parked  atomic.Int32
	ending  atomic.Bool
	// wake is sent to by run and stop and received from by parked members. It holds one token per member; an extra
	// one is harmless.
	wake chan struct{}
	// finished is sent to by the member that finishes a job whose caller has parked, and received from by run. An
	// extra token is harmless.
	finished chan struct{}
	members  sync.WaitGroup
}

var errFault = errors.New("a mapped file could not be read: it was truncated, or its disk failed")

// run calls do once for each chunk 0…n-1, and returns when all are done. member is below size. A chunk that faults in
// guarded memory ends there, and err reports it; do must not panic otherwise.
func (t *team) run(n int, do func(member, chunk int)) {
	if n <= 0 {
		return
	}
	t.do = do
	t.done.Store(0)
	t.state.Store(uint64(n) << 32)
	if t.size > 1 && n > 1 {
		t.start()
		for range min(int(t.parked.Load()), n-1) {
			nudge(t.wake)
		}
	}
	t.work(0)
	if t.done.Load() < int32(n) {
		t.wait(int32(n))
	}
}

// alone is run on the caller's goroutine only.
func (t *team) alone(n int, do func(member, chunk int)) {
	for i := 0; i < n; {
		i = t.from(i, n, do)
	}
}

// from returns the chunk after one that faults, or n.
func (t *team) from(i, n int, do func(member, chunk int)) (next int) {
	defer func() {
		if i < n {
			t.failed(recover())
			next = i + 1
		}
	}()
	for ; i < n; i++ {
		do(0, i)
	}
	return n
}

// wait spins, then parks: a descheduled member may need this CPU.
func (t *team) wait(n int32) {
	var s spinner
	for t.done.Load() < n {
		if s.spin() {
			continue
		}
		t.waiting.Store(true)
		// work counts, then looks at waiting: one of the two sees the other.
		for t.done.Load() < n {
			<-t.finished
		}
		t.waiting.Store(false)
	}
}

func (t *team) work(member int) {
	for !t.take(member) {
	}
}

// take returns false after a chunk that faulted.
func (t *team) take(member int) (all bool) {
	var n int32
	defer func() {
		if all {
			return
		}
		t.failed(recover())
		t.count(n)
	}()
	for {
		v := t.state.Load()
		if uint32(v) >= uint32(v>>32) {
			return true
		}
		v = t.state.Add(1) - 1
		if uint32(v) >= uint32(v>>32) {
			return true
		}
		n = int32(v >> 32)
		t.do(member, int(uint32(v)))
		t.count(n)
	}
}

func (t *team) count(n int32) {
	if t.done.Add(1) == n && t.waiting.Load() {
		nudge(t.finished)
	}
}

// failed records a fault in guarded memory. Other panics are bugs, and panic again.
func (t *team) failed(r any) {
	f, ok := r.(fault)
	if !ok || t.guarded == nil || !t.guarded(f.Addr()) {
		panic(r)
	}
	err := unreadable(f)
	t.fault.CompareAndSwap(nil, &err)
}

// fault is the runtime's panic value under SetPanicOnFault.
type fault interface {
	error
	Addr() uintptr
}

func unreadable(f fault) error { return fmt.Errorf("%w (%w)", errFault, f) }

func (t *team) err() error {
	if p := t.fault.Swap(nil); p != nil {
		return *p
	}
	return nil
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (t *team) start() {
	if t.running {
		return
	}
	t.running = true
	t.ending.Store(false)
	t.wake = make(chan struct{}, t.size-1)
	t.finished = make(chan struct{}, 1)
	for i := 1; i < t.size; i++ {
		t.members.Go(func() { t.member(i) })
	}
}

func (t *team) member(id int) {
	debug.SetPanicOnFault(true) // of this goroutine; take recovers
	var s spinner
	for !t.ending.Load() {
		if v := t.state.Load(); uint32(v) < uint32(v>>32) {
			t.work(id)
			s = spinner{}
			continue
		}
		if s.spin() {
			continue
		}
		t.parked.Add(1)
		// run stores the job, then looks at parked: one of the two sees the other.
		if v := t.state.Load(); uint32(v) >= uint32(v>>32) && !t.ending.Load() {
			<-t.wake
		}
		t.parked.Add(-1)
		s = spinner{}
	}
}

func (t *team) stop() {
	if !t.running {
		return
	}
	t.ending.Store(true)
	for range t.size - 1 {
		nudge(t.wake)
	}
	t.members.Wait()
	t.running = false
}

type spinner struct {
	turns int
	since time.Time
}

// spin returns true after about 50 ns, or false once spinTime has passed since the first call.
func (s *spinner) spin() bool {
	pause()
	s.turns++
	switch {
	case s.turns == 1:
		s.since = time.Now()
	case s.turns%64 == 0:
		if time.Since(s.since) > spinTime {
			return false
		}
	}
	return true
}
