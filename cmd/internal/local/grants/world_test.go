package grants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Times of the instances, in the bubble's time.
const (
	loadTakes   = 3 * time.Second
	wakeTakes   = 150 * time.Millisecond
	sleepTakes  = 80 * time.Millisecond
	answerTakes = 20 * time.Millisecond
)

// world is one device, the instances on it, and the autoscaler and activator that live
// now. Whatever passes between them passes a point, where somebody may be struck down.
type world struct {
	t  *testing.T
	wg sync.WaitGroup

	mu        sync.Mutex // guards all below
	instances map[api.InstanceID]*server
	core      *core
	door      *door
	term      uint64
	lives     int
	trail     []string
	passed    int      // points
	fate      fate     // what is to happen
	at        int      // at which point; 0: never
	lawless   bool     // instances obey any epoch
	cut       bool     // activator and autoscaler do not reach one another
	lost      []string // what clients were told that is no answer
	over      string   // why the world is broken
}

// server is an instance: it has the device's memory or not, and obeys orders as a function does.
type server struct {
	w       *world
	s       api.InstanceStatus
	f       api.FunctionName
	up      bool // it holds what it takes awake
	dead    bool
	running int
	turn    chan struct{} // one place: a wake or sleep at a time
}

func (w *world) note(format string, args ...any) {
	w.trail = append(w.trail, fmt.Sprintf("%8.3f ", float64(time.Since(epochOfBubbles).Microseconds())/1e6)+fmt.Sprintf(format, args...))
}

// epochOfBubbles is when time begins in a bubble of synctest.
var epochOfBubbles = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// add makes an instance.
func (w *world) add(id api.InstanceID, f api.FunctionName, s api.State, epoch uint64) *server {
	i := &server{w: w, f: f, turn: make(chan struct{}, 1)}
	i.s = api.InstanceStatus{Instance: id, Function: f, State: s, Epoch: epoch, Since: time.Now(), Concurrency: 4, PID: 1,
		Endpoint: api.Endpoint("http://" + string(id)), Devices: []api.DeviceID{"gpu"}}
	if s == api.Asleep {
		i.s.Level = api.Level1
	}
	w.instances[id] = i
	i.weigh()
	return i
}

// weigh takes or gives back memory as the state says, and checks that there is some. w.mu is held.
func (i *server) weigh() {
	m := api.Memory{Host: api.MiB, Devices: 1, PerDevice: whole}
	i.up = !i.dead && i.s.State != api.Asleep && i.s.State != api.Gone
	if !i.up {
		m.PerDevice = residue
	}
	i.s.Memory = m
	var sum api.Bytes
	for _, o := range i.w.instances {
		if !o.dead {
			sum += o.s.Memory.PerDevice
		}
	}
	if sum > capacity && i.w.over == "" {
		i.w.over = fmt.Sprintf("%s is %s: %s are in use of %s", i.s.Instance, i.s.State, sum, capacity)
		i.w.note("%s", i.w.over)
	}
}

// become changes an instance's state and reports it. w.mu is held.
func (i *server) become(s api.State, stage string) {
	i.s.State, i.s.Stage, i.s.Since, i.s.Level = s, stage, time.Now(), 0
	if s == api.Asleep {
		i.s.Level = api.Level1
	}
	i.s.Seq++
	i.weigh()
	i.w.note("  %s is %s", i.s.Instance, s)
	i.w.report(i.s)
}

// report sends an instance's report to every living part, each in its own message. w.mu is held.
func (w *world) report(s api.InstanceStatus) {
	w.wg.Go(func() {
		if c := w.current(); w.pass(c, nil, "report of %s, %s, to the autoscaler", s.Instance, s.State) {
			c.a.ObserveInstance(s)
		}
	})
	w.wg.Go(func() {
		if d := w.entrance(); !w.isCut() && w.pass(nil, d, "report of %s, %s, to the activator", s.Instance, s.State) {
			d.a.ObserveInstance(s)
		}
	})
}

// order has an instance take in an order: the rules of package functions/supervise.
func (i *server) order(ctx context.Context, epoch uint64, to api.State, drain time.Duration) (api.InstanceStatus, error) {
	w := i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.dead {
		return api.InstanceStatus{}, errors.New("connection refused")
	}
	if !w.lawless && api.StaleEpoch(epoch, i.s.Epoch) {
		return api.InstanceStatus{}, api.Errorf(http.StatusConflict, api.CodeStaleEpoch, "epoch %d is older than %d", epoch, i.s.Epoch)
	}
	i.s.Epoch = max(i.s.Epoch, epoch)
	if to == "" { // a fence
		i.s.Seq++
		return i.s, nil
	}
	done := make(chan struct{})
	w.wg.Go(func() { // who called may leave: it goes on
		defer close(done)
		i.turn <- struct{}{}
		defer func() { <-i.turn }()
		i.turnTo(to, epoch, drain)
	})
	w.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	w.mu.Lock()
	switch {
	case i.dead:
		return api.InstanceStatus{}, errors.New("connection reset")
	case ctx.Err() != nil:
		return api.InstanceStatus{}, context.Cause(ctx)
	case i.s.State != to:
		return api.InstanceStatus{}, api.Errorf(http.StatusConflict, api.CodeStaleEpoch, "it is %s: a later order overtook this one", i.s.State)
	}
	i.s.Seq++
	return i.s, nil
}

// turnTo wakes or sleeps, unless a later order has come meanwhile.
func (i *server) turnTo(to api.State, epoch uint64, drain time.Duration) {
	w := i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.dead || i.s.State == to || !w.lawless && api.StaleEpoch(epoch, i.s.Epoch) && to == api.Awake {
		return
	}
	during, takes := api.Starting, wakeTakes
	if to == api.Asleep {
		during, takes = api.Draining, sleepTakes
	}
	i.become(during, "waking")
	for deadline := time.Now().Add(drain); to == api.Asleep && i.running > 0 && time.Now().Before(deadline); {
		i.wait(time.Millisecond)
	}
	i.wait(takes)
	if !i.dead {
		i.become(to, "")
	}
}

// wait lets time pass; w.mu is held before and after.
func (i *server) wait(d time.Duration) {
	i.w.mu.Unlock()
	time.Sleep(d)
	i.w.mu.Lock()
}

// die ends an instance's process, which is then reported. w.mu is held.
func (i *server) die() {
	if i.dead {
		return
	}
	i.dead = true
	i.become(api.Gone, "")
	delete(i.w.instances, i.s.Instance)
}

// load starts a new instance's runtime. w.mu is held.
func (i *server) load() {
	i.become(api.Starting, "loading")
	i.w.wg.Go(func() {
		i.w.mu.Lock()
		defer i.w.mu.Unlock()
		i.wait(loadTakes)
		if !i.dead && i.s.State == api.Starting {
			i.become(api.Awake, "")
		}
	})
}

// RoundTrip is a client's request at an instance.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.instances[api.InstanceID(r.URL.Host)]
	if i == nil || i.dead {
		return nil, errors.New("connection refused")
	}
	if i.s.State != api.Awake {
		return answer(r, http.StatusServiceUnavailable, control.HeaderRefused, `{"error":{"message":"asleep","code":"asleep"}}`), nil
	}
	i.running++
	i.wait(answerTakes)
	i.running--
	if i.dead {
		return nil, errors.New("connection reset")
	}
	return answer(r, http.StatusOK, "", fmt.Sprintf(`{"object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}]}`, i.f)), nil
}

func answer(r *http.Request, status int, refused, body string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	if refused != "" {
		h.Set(refused, api.CodeAsleep)
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}
