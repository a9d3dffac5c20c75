package autoscaler

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/rouse-dev/rouse/autoscaler/ledger"
)

// fleet is a world in virtual time: instances that load, wake and sleep, and an
// activator that holds requests, sends them to awake instances and wakes under
// grants. It is the autoscaler's [Effects].
type fleet struct {
	t    *testing.T
	a    *Autoscaler
	wg   sync.WaitGroup
	from time.Time

	mu        sync.Mutex // guards all below
	capacity  api.Bytes
	functions map[api.FunctionName]*fakeFunction
	instances map[api.InstanceID]*fakeInstance
	calls     []string
	peak      api.Bytes
	refused   map[api.FunctionName][]string
	mute      bool // state reports are lost
	deaf      bool // the activator can't be reached
}

// fakeFunction is one function's nature and its door.
type fakeFunction struct {
	spec              api.Function
	load, wake, sleep time.Duration
	awake, asleep     api.Bytes
	failStarts        int // so many starts fail
	failWakes         int
	failSleeps        int
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

// restart replaces the autoscaler by a new one that knows nothing.
func (w *fleet) restart(policy decide.Policy) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	a, err := New(Config{Devices: []ledger.Device{{ID: api.HostMemory, Capacity: w.capacity, Total: w.capacity}}, Policy: policy},
		w, nil, log, prometheus.NewRegistry())
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.a = a
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
}

// add declares a function of so much memory.
func (w *fleet) add(name string, memory api.Bytes, edit func(*fakeFunction)) *fakeFunction {
	f := &fakeFunction{
		spec: api.Function{Name: api.NewFunctionName("", name), Memory: api.Memory{Host: memory}, Concurrency: 4,
			SleepAfter: time.Minute, GoneAfter: 15 * time.Minute}.WithDefaults(),
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

// transcript is all calls.
func (w *fleet) transcript() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.calls, "\n")
}

// weigh checks the truth: what is awake or on the way never exceeds the machine.
func (w *fleet) weigh() {
	var sum api.Bytes
	for _, i := range w.instances {
		if i.s.State != api.Asleep {
			sum += i.f.awake
		}
	}
	if w.peak = max(w.peak, sum); sum > w.capacity {
		w.t.Errorf("at %s: %s are in use of %s\n%s", time.Since(w.from), sum, w.capacity, strings.Join(w.calls, "\n"))
	}
}

// to changes an instance's state and reports it. w.mu is held.
func (w *fleet) to(i *fakeInstance, state api.State, level api.Level) {
	i.s.State, i.s.Level, i.s.Since = state, level, time.Now()
	i.s.Seq++
	// As real instances do, it says what it used before, and measures after that.
	w.wg.Go(func() { w.measure(i, i.s.Seq) })
	w.weigh()
	if state == api.Gone {
		i.dead = true
		delete(w.instances, i.s.Instance)
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
	case api.Asleep:
		i.s.Memory.Host = i.f.asleep
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
	d := api.Demand{Function: f.spec.Name, Activator: "door", Waiting: len(f.queue), Running: f.running,
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

// serve does one request's work.
func (w *fleet) serve(i *fakeInstance, r *request) {
	time.Sleep(r.work)
	w.mu.Lock()
	defer w.mu.Unlock()
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
				if len(f.queue)+f.running > 0 {
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

// Start is part of [Effects].
func (w *fleet) Start(_ context.Context, spec api.Function, id api.InstanceID, g api.Grant) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("start %s", id)
	f := w.functions[spec.Name]
	if f.failStarts > 0 && f.load == 0 {
		f.failStarts--
		return errors.New("exec: no such file")
	}
	i := &fakeInstance{f: f, s: api.InstanceStatus{Instance: id, Function: spec.Name, Epoch: g.Epoch, Concurrency: spec.Concurrency}}
	w.instances[id] = i
	w.to(i, api.Starting, 0)
	w.wg.Go(func() {
		time.Sleep(f.load)
		w.mu.Lock()
		defer w.mu.Unlock()
		if i.dead {
			return
		}
		if f.failStarts > 0 {
			f.failStarts--
			i.s.Message = "the model file is broken"
			w.to(i, api.Gone, 0)
			return
		}
		i.s.LoadTime = f.load
		w.to(i, api.Awake, 0)
	})
	return nil
}

// Wake is part of [Effects].
func (w *fleet) Wake(ctx context.Context, s api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	w.mu.Lock()
	w.log("wake %s", s.Instance)
	w.mu.Unlock()
	return w.wakeUp(ctx, s.Instance, g)
}

func (w *fleet) wakeUp(_ context.Context, id api.InstanceID, g api.Grant) (api.InstanceStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.instances[id]
	if i == nil {
		return api.InstanceStatus{}, errors.New("connection refused")
	}
	for i.waking != nil {
		c := i.waking
		w.mu.Unlock()
		<-c
		w.mu.Lock()
	}
	switch {
	case i.dead:
		return api.InstanceStatus{}, errors.New("connection refused")
	case i.s.State == api.Awake:
		return i.s, nil
	case g.Epoch < i.s.Epoch:
		return i.s, api.Errorf(409, api.CodeStaleEpoch, "epoch %d is older than %d", g.Epoch, i.s.Epoch)
	case i.s.State != api.Asleep:
		return i.s, api.Errorf(503, api.CodeDraining, "it is %s", i.s.State)
	}
	i.s.Epoch = g.Epoch
	from := i.s.Level
	c := make(chan struct{})
	i.waking = c
	w.to(i, api.Starting, from)
	w.mu.Unlock()
	time.Sleep(i.f.wake)
	w.mu.Lock()
	i.waking = nil
	close(c)
	if i.dead {
		return api.InstanceStatus{}, errors.New("connection reset")
	}
	if i.f.failWakes > 0 {
		i.f.failWakes--
		w.to(i, api.Asleep, from)
		return api.InstanceStatus{}, errors.New("out of memory")
	}
	i.s.WakeTime = i.f.wake
	w.to(i, api.Awake, 0)
	return i.s, nil
}

// Sleep is part of [Effects].
func (w *fleet) Sleep(_ context.Context, s api.InstanceStatus, level api.Level, epoch uint64, drain time.Duration) (api.InstanceStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("sleep %s %d", s.Instance, level)
	i := w.instances[s.Instance]
	if i == nil {
		return api.InstanceStatus{}, errors.New("connection refused")
	}
	if i.f.failSleeps > 0 {
		i.f.failSleeps--
		return api.InstanceStatus{}, errors.New("the runtime says 500")
	}
	i.s.Epoch = max(i.s.Epoch, epoch)
	if i.s.State == api.Asleep && i.s.Level >= level {
		return i.s, nil
	}
	w.drain(i, drain)
	w.mu.Unlock()
	time.Sleep(i.f.sleep)
	w.mu.Lock()
	if i.dead {
		return api.InstanceStatus{}, errors.New("connection reset")
	}
	i.s.SleepTime = i.f.sleep
	w.to(i, api.Asleep, level)
	return i.s, nil
}

func (w *fleet) drain(i *fakeInstance, limit time.Duration) {
	w.to(i, api.Draining, i.s.Level)
	if i.running == 0 {
		return
	}
	i.idle = make(chan struct{})
	c := i.idle
	w.mu.Unlock()
	select {
	case <-c:
	case <-time.After(limit):
	}
	w.mu.Lock()
}

// Stop is part of [Effects].
func (w *fleet) Stop(_ context.Context, s api.InstanceStatus, drain time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("stop %s", s.Instance)
	if i := w.instances[s.Instance]; i != nil {
		if i.s.State == api.Awake {
			w.drain(i, drain)
		}
		if !i.dead {
			w.to(i, api.Gone, 0)
		}
	}
	return nil
}

// State is part of [Effects].
func (w *fleet) State(_ context.Context, s api.InstanceStatus) (api.InstanceStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.instances[s.Instance]; i != nil {
		return i.s, nil
	}
	return api.InstanceStatus{}, errors.New("connection refused")
}

// Grant is part of [Effects].
func (w *fleet) Grant(_ context.Context, g api.Grant) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("grant %s", g.Instance)
	if w.deaf {
		return errors.New("connection refused")
	}
	f := w.functions[g.Function]
	f.grants[g.Instance] = g
	w.dispatch(f)
	return nil
}

// Revoke is part of [Effects].
func (w *fleet) Revoke(_ context.Context, g api.Grant) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("revoke %s", g.Instance)
	if w.deaf {
		return errors.New("connection refused")
	}
	delete(w.functions[g.Function].grants, g.Instance)
	if i := w.instances[g.Instance]; i != nil && i.waking != nil {
		c := i.waking
		w.mu.Unlock()
		<-c
		w.mu.Lock()
	}
	return nil
}

// Fail is part of [Effects].
func (w *fleet) Fail(_ context.Context, name api.FunctionName, err *api.Error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.functions[name]
	for range f.queue {
		w.refused[name] = append(w.refused[name], fmt.Sprintf("%d %s: %s", err.Status, err.Code, err.Message))
	}
	w.log("fail %s", name)
	f.queue = nil
	w.demand(f)
	return nil
}
