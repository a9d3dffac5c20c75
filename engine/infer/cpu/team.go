package cpu

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// spinTime is how long an idle member looks for work, and a caller for the end of its job,
// before it parks: longer than the gaps between the stages of a step, shorter than anyone
// would notice.
const spinTime = 50 * time.Microsecond

// team runs chunks of work on several goroutines, the caller's being one. Members are
// started by the first job that needs them and end in stop. A member that comes late finds
// nothing left to take: run does not wait for a goroutine that has not begun. Only one
// goroutine may use a team at a time. It must be the same that calls stop.
type team struct {
	size    int // goroutines, the caller's included
	guarded func(address uintptr) bool
	running bool

	// do is the job. It is written by run before state, and read by every goroutine that took a chunk
	// from state: run does not return, and so does not write again, before that chunk is done.
	do func(member, chunk int)
	// state is the job's number of chunks in the upper half and the number of those taken in
	// the lower. A chunk is taken by adding one; when the sum before is beyond
	// the number there was none. Members go beyond it by one each at most.
	state atomic.Uint64
	_     [64]byte // members write state and done all the time, and read the rest
	done  atomic.Int32
	_     [64]byte

	fault   atomic.Pointer[error] // the first one since err was called
	waiting atomic.Bool           // the caller waits for finished
	parked  atomic.Int32
	ending  atomic.Bool
	// wake is sent to by run and stop and received from by parked members. It holds one
	// token per member; a token too many makes a member look once for nothing.
	wake chan struct{}
	// finished is sent to by the member that finishes a job whose caller has parked, and
	// received from by run. It holds one token; one too many makes run look once more.
	finished chan struct{}
	members  sync.WaitGroup
}

// errFault is err's error when guarded memory could not be read.
var errFault = errors.New("a mapped file could not be read: it was truncated, or its disk failed")

// run calls do for each chunk 0…n-1, each once, and returns when all are done. member tells
// which of size goroutines runs it. A chunk that reads guarded memory that is not there ends there,
// and err tells; do must not panic otherwise.
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

// alone does what run does on the caller's goroutine only.
func (t *team) alone(n int, do func(member, chunk int)) {
	for i := 0; i < n; {
		i = t.from(i, n, do)
	}
}

// from runs chunks from i on, up to one that faults, and gives the number of the next.
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

// wait returns when n chunks are done: soon, or it parks, for a member has been put aside by
// the system in the middle of a chunk, and may need this very processor.
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

// work takes chunks until none is left.
func (t *team) work(member int) {
	for !t.take(member) {
	}
}

// take works until no chunk is left, which gives true, or until a chunk faults.
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

// count counts a chunk of a job of n as done.
func (t *team) count(n int32) {
	if t.done.Add(1) == n && t.waiting.Load() {
		nudge(t.finished)
	}
}

// failed keeps what a chunk panicked with, if it is a fault in guarded memory; else it is a
// defect of this program.
func (t *team) failed(r any) {
	f, ok := r.(fault)
	if !ok || t.guarded == nil || !t.guarded(f.Addr()) {
		panic(r)
	}
	err := unreadable(f)
	t.fault.CompareAndSwap(nil, &err)
}

// fault is what the runtime panics with where SetPanicOnFault is on: the address could not be
// read.
type fault interface {
	error
	Addr() uintptr
}

func unreadable(f fault) error { return fmt.Errorf("%w (%w)", errFault, f) }

// err gives the first fault since the last call.
func (t *team) err() error {
	if p := t.fault.Swap(nil); p != nil {
		return *p
	}
	return nil
}

// nudge sends a token without waiting: a full channel has one for the receiver already.
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

// stop ends the members and waits for them. The team can be used again.
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

// spinner lets some time pass without giving the processor away. The zero value is ready.
type spinner struct {
	turns int
	since time.Time
}

// spin returns true after some 50 ns, false when spinTime has passed since the first call.
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
