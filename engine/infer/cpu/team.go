package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// spins is how often an idle member looks for work before it parks: some 20 µs,
// longer than the gaps between the stages of a step, shorter than anyone would notice.
const spins = 20_000

// team runs chunks of work on several goroutines, the caller's being one. Members are
// started by the first job that needs them and end in stop. A member that
// comes late finds nothing left to take: nobody waits for a goroutine that has not begun.
// Only one goroutine may use a team at a time.
type team struct {
	size    int // goroutines, the caller's included
	running bool
	job     atomic.Pointer[job]
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

// job is n chunks of work. A new one is made for each run, so that a late member can
// never take a chunk of the next.
type job struct {
	do   func(member, chunk int)
	n    int32
	next atomic.Int32 // chunks taken
	done atomic.Int32 // chunks finished

	parked atomic.Bool // the caller waits for finished
}

func (t *team) work(j *job, member int) {
	for {
		i := j.next.Add(1) - 1
		if i >= j.n {
			return
		}
		j.do(member, int(i))
		if j.done.Add(1) == j.n && j.parked.Load() {
			nudge(t.finished)
		}
	}
}

// run calls do for each chunk 0…n-1, each once, and returns when all are done. member tells
// which of size goroutines runs it. do must not panic.
func (t *team) run(n int, do func(member, chunk int)) {
	if t.size <= 1 || n <= 1 {
		for i := range n {
			do(0, i)
		}
		return
	}
	t.start()
	j := &job{do: do, n: int32(n)}
	t.job.Store(j)
	for range min(int(t.parked.Load()), n-1) {
		nudge(t.wake)
	}
	t.work(j, 0)
	for i := 0; j.done.Load() < j.n; i++ {
		if i%1024 == 1023 {
			runtime.Gosched()
		}
		if i > spins {
			t.wait(j)
		}
	}
}

// wait parks the caller of run: a member has been put aside by the system in the middle of
// a chunk, and may need this very processor.
func (t *team) wait(j *job) {
	j.parked.Store(true)
	// work counts, then looks at parked: one of the two sees the other.
	for j.done.Load() < j.n {
		<-t.finished
	}
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
	t.job.Store(nil)
	t.wake = make(chan struct{}, t.size-1)
	t.finished = make(chan struct{}, 1)
	for i := 1; i < t.size; i++ {
		t.members.Go(func() { t.member(i) })
	}
}

func (t *team) member(id int) {
	var last *job
	for idle := 0; !t.ending.Load(); idle++ {
		if j := t.job.Load(); j != last {
			t.work(j, id)
			last, idle = j, 0
			continue
		}
		if idle%1024 == 1023 {
			runtime.Gosched()
		}
		if idle < spins {
			continue
		}
		idle = 0
		t.parked.Add(1)
		// run stores the job, then looks at parked: one of the two sees the other.
		if t.job.Load() == last && !t.ending.Load() {
			<-t.wake
		}
		t.parked.Add(-1)
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
