package autoscaler

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// fleet is a world in virtual time: instances that load, wake and sleep, and an
// activator that holds requests, sends them to awake instances and wakes under
// grants. It is the autoscaler's [Effects].
type fleet struct {
	t    *testing.T
	a    *Autoscaler
	wg   sync.WaitGroup
	from time.Time

	registry *prometheus.Registry // of a
	record   string               // the folder of a's record

	mu        sync.Mutex // guards all below
	capacity  api.Bytes
	functions map[api.FunctionName]*fakeFunction
	instances map[api.InstanceID]*fakeInstance
	calls     []string
	peak      api.Bytes
	adapts    []error // what the next calls of Adapt answer
	refused   map[api.FunctionName][]string
	mute      bool // state reports are lost
	deaf      bool // the activator can't be reached

	finally func() // when the autoscaler has ended
}

// fakeFunction is one function's nature and its door.
type fakeFunction struct {
	spec              api.Function
	load, wake, sleep time.Duration
	awake, asleep     api.Bytes
	shared            api.Bytes // of awake: what all its instances have in common
	failStarts        int       // so many starts fail
	failWakes         int
	failSleeps        int
	busySleeps        int    // so many sleeps are refused, as work came
	background        int    // lines that run
	unloads           bool   // its process ends when it sleeps
	says              string // of a start that fails
	queue             []*request
	running           int
	last              time.Time
	waking            api.InstanceID
	worst             time.Duration // the longest wait
	served            int
	grants            map[api.InstanceID]api.Grant
}

type request struct {
	came time.Time
	work time.Duration
}

type fakeInstance struct {
	f       *fakeFunction
	s       api.InstanceStatus
	running int
	idle    chan struct{} // closed when running falls to zero; nil if nobody waits
	waking  chan struct{} // closed when the wake under way ends
	dead    bool
	up      bool // it takes what it takes awake
}

// world runs a test in a fleet with so much memory.
func world(t *testing.T, capacity api.Bytes, policy decide.Policy) *fleet {
	t.Helper()
	w := &fleet{t: t, capacity: capacity, from: time.Now(),
		functions: map[api.FunctionName]*fakeFunction{}, instances: map[api.InstanceID]*fakeInstance{},
		refused: map[api.FunctionName][]string{}}
	w.restart(policy)
	return w
}

// segmentAge is so short that most tests have several segments.
const segmentAge = 37 * time.Second

// restart replaces the autoscaler by a new one that knows nothing.
func (w *fleet) restart(policy decide.Policy) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	registry := prometheus.NewRegistry()
	w.record = w.t.TempDir()
	a, err := New(Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: w.capacity, Total: w.capacity}}, Policy: policy,
		Record: flight.Config{Folder: w.record, MostAge: segmentAge}},
		w, nil, log, registry)
	if err != nil {
		w.t.Fatal(err)
	}
	expectRest(a)
	w.mu.Lock()
	w.a, w.registry = a, registry
	w.mu.Unlock()
}

// run runs the autoscaler while body does.
func (w *fleet) run(body func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.a.Run(ctx) }()
	body()
	cancel()
	if err := <-done; err != nil {
		w.t.Errorf("Run: %v", err)
	}
	if w.finally != nil {
		w.finally()
	}
	n, err := replayAll(w.record)
	if w.t.Logf("replayed: %+v", n); err != nil {
		w.t.Errorf("the replay of this run: %v", err)
	}
}

// add declares a function of so much memory.
func (w *fleet) add(name string, memory api.Bytes, edit func(*fakeFunction)) *fakeFunction {
	f := &fakeFunction{
		spec: api.Function{Name: api.NewFunctionName("", name), Memory: api.Memory{Host: memory}, Concurrency: 4,
			SleepAfter: time.Minute, UnloadAfter: 15 * time.Minute}.WithDefaults(),
		load: 3 * time.Second, wake: 200 * time.Millisecond, sleep: 100 * time.Millisecond,
		awake: memory, asleep: memory / 20, grants: map[api.InstanceID]api.Grant{},
	}
	if edit != nil {
		edit(f)
	}
	w.mu.Lock()
	w.functions[f.spec.Name] = f
	w.mu.Unlock()
	w.a.PutFunction(f.spec)
	return f
}

func (w *fleet) log(format string, args ...any) {
	w.calls = append(w.calls, fmt.Sprintf("%.3f ", time.Since(w.from).Seconds())+fmt.Sprintf(format, args...))
}

// count counts calls that start with prefix, the time left out.
func (w *fleet) count(prefix string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.calls {
		if _, c, _ := strings.Cut(c, " "); strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// told are the autoscaler's decisions of a kind for a function.
func (w *fleet) told(f *fakeFunction, action string) []api.Decision {
	return slices.DeleteFunc(w.a.Why(f.spec.Name), func(d api.Decision) bool { return d.Action != action })
}

// transcript is all calls.
func (w *fleet) transcript() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.calls, "\n")
}

// weigh checks the truth: what is awake or on the way never exceeds the machine.
func (w *fleet) weigh() {
	var sum api.Bytes
	common := map[*fakeFunction]bool{}
	for _, i := range w.instances {
		if !i.up {
			continue
		}
		if sum += i.f.awake; common[i.f] {
			sum -= i.f.shared
		}
		common[i.f] = true
	}
	if w.peak = max(w.peak, sum); sum > w.capacity {
		w.t.Errorf("at %s: %s are in use of %s\n%s", time.Since(w.from), sum, w.capacity, strings.Join(w.calls, "\n"))
	}
}

// to changes an instance's state and reports it. w.mu is held.
func (w *fleet) to(i *fakeInstance, state api.State, level api.Level) {
	w.log("  %s is %s (mute %t, deaf %t)", i.s.Instance, state, w.mute, w.deaf)
	switch state {
	case api.Starting, api.Awake:
		i.up = true
	case api.Asleep, api.Gone:
		i.up = false
	}
	i.s.State, i.s.Level, i.s.Since = state, level, time.Now()
	i.s.Seq++
	i.s.PID = 1
	if i.f.unloads && state == api.Asleep {
		i.s.PID = 0
	}
	// As real instances do, it says what it used before, and measures after that.
	seq := i.s.Seq
	w.wg.Go(func() { w.measure(i, seq) })
	w.weigh()
	if state == api.Gone {
		i.dead = true
		delete(w.instances, i.s.Instance)
		i.f.running -= i.running // what ran there is sent again
		for range i.running {
			i.f.queue = append(i.f.queue, &request{came: time.Now(), work: time.Second})
		}
		i.running = 0
	}
	if !w.mute {
		w.a.ObserveInstance(i.s)
	}
	w.dispatch(i.f)
}

// measure reports what an instance uses, a moment after its state has changed.
func (w *fleet) measure(i *fakeInstance, seq uint64) {
	time.Sleep(2 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.s.Seq != seq || i.dead {
		return
	}
	switch i.s.State {
	case api.Awake:
		i.s.Memory.Host = i.f.awake
		if i.f.shared > 0 {
			i.s.Shared = api.SharedMemory{File: string(i.f.spec.Name), Bytes: i.f.shared}
		}
	case api.Asleep:
		i.s.Memory.Host, i.s.Shared = i.f.asleep, api.SharedMemory{}
	default:
		return
	}
	i.s.Seq++
	if !w.mute {
		w.a.ObserveInstance(i.s)
	}
}

// demand reports a function's demand. w.mu is held.
func (w *fleet) demand(f *fakeFunction) {
	d := api.Demand{Function: f.spec.Name, Activator: "door", Waiting: len(f.queue), Running: f.running, Background: f.background,
		LastRequest: f.last, Waking: f.waking, At: time.Now()}
	if len(f.queue) > 0 {
		d.OldestAge = time.Since(f.queue[0].came)
	}
	w.a.ObserveDemand(d)
}

// request brings n requests that take work each.
func (w *fleet) request(f *fakeFunction, n int, work time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.last = time.Now()
	for range n {
		f.queue = append(f.queue, &request{came: f.last, work: work})
	}
	w.dispatch(f)
}

// dispatch sends held requests to awake instances, and wakes under a grant. w.mu is held.
func (w *fleet) dispatch(f *fakeFunction) {
	for _, i := range w.sorted(f) {
		for i.s.State == api.Awake && i.running < f.spec.Concurrency && len(f.queue) > 0 {
			r := f.queue[0]
			f.queue = f.queue[1:]
			f.worst = max(f.worst, time.Since(r.came))
			i.running++
			f.running++
			w.wg.Go(func() { w.serve(i, r) })
		}
	}
	for id, g := range f.grants {
		i := w.instances[id]
		if len(f.queue) > 0 && i != nil && i.s.State == api.Asleep && g.Valid(time.Now()) && f.waking == "" && !w.deaf {
			f.waking = id
			w.wg.Go(func() {
				_, err := w.wakeUp(context.Background(), id, g)
				w.mu.Lock()
				defer w.mu.Unlock()
				f.waking = ""
				if err != nil {
					delete(f.grants, id)
				}
				w.demand(f)
			})
		}
	}
	w.demand(f)
}

func (w *fleet) sorted(f *fakeFunction) []*fakeInstance {
	var is []*fakeInstance
	for _, i := range w.instances {
		if i.f == f {
			is = append(is, i)
		}
	}
	slices.SortFunc(is, func(a, b *fakeInstance) int { return cmp.Compare(a.s.Instance, b.s.Instance) })
	return is
}

// line has an awake instance do work that is no demand, as a line of a batch, or, where nobody tells of it, as one of an activator that can't.
func (w *fleet) line(f *fakeFunction, work time.Duration, told bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.sorted(f)[0]
	i.running++
	if told {
		f.background++
	}
	w.demand(f)
	w.wg.Go(func() {
		time.Sleep(work)
		w.mu.Lock()
		defer w.mu.Unlock()
		i.running--
		if told {
			f.background--
		}
		if i.running == 0 && i.idle != nil {
			close(i.idle)
			i.idle = nil
		}
		w.demand(f)
	})
}

// serve does one request's work.
func (w *fleet) serve(i *fakeInstance, r *request) {
	time.Sleep(r.work)
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.dead {
		return // it was put back into the queue
	}
	i.running--
	i.f.running--
	i.f.served++
	if i.running == 0 && i.idle != nil {
		close(i.idle)
		i.idle = nil
	}
	w.dispatch(i.f)
}

// repeat reports demands that are not zero each second, as activators do, until ctx ends.
func (w *fleet) repeat(ctx context.Context) {
	w.wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			w.mu.Lock()
			for _, f := range w.functions {
				if len(f.queue)+f.running+f.background > 0 {
					w.demand(f)
				}
			}
			w.mu.Unlock()
		}
	})
}

// state returns an instance's state as it truly is.
func (w *fleet) state(id api.InstanceID) api.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.instances[id]; i != nil {
		return i.s.State
	}
	return api.Gone
}
