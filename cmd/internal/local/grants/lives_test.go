package grants

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// core is one life of the autoscaler, and its Effects.
type core struct {
	w      *world
	name   string
	a      *autoscaler.Autoscaler
	stop   context.CancelFunc
	dead   bool          // w.mu
	frozen chan struct{} // closed when it goes on; nil: it is not frozen. w.mu
}

// door is one life of the activator, and its Waker.
type door struct {
	w    *world
	a    *activator.Activator
	ctx  context.Context
	stop context.CancelFunc
	dead bool // w.mu
}

func (w *world) current() *core {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.core
}

func (w *world) entrance() *door {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.door
}

// isCut reports whether activator and autoscaler can't reach each other.
func (w *world) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

// specs are the two functions; either one's instance fills the device.
func specs() (all []api.Function) {
	for i := range instances {
		m := api.Memory{Host: api.MiB, Devices: 1, PerDevice: whole}
		all = append(all, api.Function{Name: functionName(i), Memory: m, Concurrency: 4, MaxScale: 1, SleepAfter: time.Hour,
			StartTimeout: time.Minute, WakeTimeout: 10 * time.Second}.WithDefaults())
	}
	return all
}

// newCore begins a life of the autoscaler; all instances report to it. w.mu is held.
func (w *world) newCore() {
	w.term++
	ctx, cancel := context.WithCancel(context.Background())
	c := &core{w: w, name: "autoscaler " + string(rune('0'+w.term)), stop: cancel}
	a, err := autoscaler.New(autoscaler.Config{
		Term:    w.term,
		Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 64 * api.GiB, Total: 64 * api.GiB}, {ID: "gpu", Capacity: capacity, Total: capacity}},
		Policy:  decide.Policy{TurnWait: time.Second, MinStay: 200 * time.Millisecond, MaxStay: time.Second},
	}, c, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c.a = a
	w.core = c
	w.note("%s begins", c.name)
	for _, f := range specs() {
		a.PutFunction(f)
	}
	for _, i := range w.instances {
		s := i.s
		a.ObserveInstance(api.InstanceStatus{Instance: s.Instance, Function: s.Function, State: api.Starting, Since: time.Now(), Devices: s.Devices}) // that it is there
		i.s.Seq++
		w.report(i.s)
	}
	w.wg.Go(func() {
		if err := a.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
}

// newDoor begins a life of the activator. w.mu is held.
func (w *world) newDoor() {
	ctx, cancel := context.WithCancel(context.Background())
	d := &door{w: w, ctx: ctx, stop: cancel}
	w.lives++
	a, err := activator.New(activator.Config{Name: "door-" + string(rune('0'+w.lives))}, activator.Deps{Emitter: d, Waker: d, Transport: w})
	if err != nil {
		w.t.Fatal(err)
	}
	d.a = a
	w.door = d
	w.note("an activator begins")
	for _, f := range specs() {
		a.PutFunction(f)
	}
	for _, i := range w.instances {
		i.s.Seq++
		w.report(i.s)
	}
	w.wg.Go(func() { _ = a.Run(ctx) })
}

// Emit sends an activator's event.
func (d *door) Emit(e api.Event) {
	d.w.wg.Go(func() {
		if !d.w.pass(nil, d, "event %s leaves the activator", e.Type) {
			return
		}
		if c := d.w.current(); !d.w.isCut() && d.w.pass(c, nil, "event %s reaches the autoscaler", e.Type) && e.Type == api.EventDemand {
			if err := c.a.Receive(e); err != nil {
				d.w.t.Errorf("the autoscaler refuses %s: %v", e.Data, err)
			}
		}
	})
}

var errDead = errors.New("connection refused")

// Wake is an activator's wake under its grant.
func (d *door) Wake(ctx context.Context, at api.Endpoint, g api.Grant) (api.InstanceStatus, error) {
	return d.w.call(func() bool { return d.w.pass(nil, d, "the activator wakes %s", g.Instance) }, g.Instance, func(i *server) (api.InstanceStatus, error) {
		return i.order(ctx, g.Epoch, api.Awake, 0)
	})
}

// call is a call of an instance, with a point before it and after.
func (w *world) call(point func() bool, id api.InstanceID, do func(*server) (api.InstanceStatus, error)) (api.InstanceStatus, error) {
	if !point() {
		return api.InstanceStatus{}, errDead // it was never sent
	}
	w.mu.Lock()
	i := w.instances[id]
	w.mu.Unlock()
	if i == nil {
		return api.InstanceStatus{}, errDead
	}
	s, err := do(i)
	if !point() {
		return api.InstanceStatus{}, errDead // it was, and nobody hears of the end
	}
	return s, err
}

func (c *core) call(what string, id api.InstanceID, do func(*server) (api.InstanceStatus, error)) (api.InstanceStatus, error) {
	return c.w.call(func() bool { return c.w.pass(c, nil, "%s: %s %s", c.name, what, id) }, id, do)
}

// Start is part of [autoscaler.Effects].
func (c *core) Start(_ context.Context, f api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	if !c.w.pass(c, nil, "%s: start %s", c.name, id) {
		return "", errDead
	}
	c.w.mu.Lock()
	c.w.lives++
	real := api.InstanceID(string(id) + "-" + string(rune('a'+c.w.lives%26)))
	c.w.add(real, f.Name, api.Starting, g.Epoch).load()
	c.w.mu.Unlock()
	c.w.pass(c, nil, "%s: start %s", c.name, id)
	return real, nil
}

// Wake is part of [autoscaler.Effects].
func (c *core) Wake(ctx context.Context, s api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	return c.call("wake", s.Instance, func(i *server) (api.InstanceStatus, error) { return i.order(ctx, g.Epoch, api.Awake, 0) })
}

// Sleep is part of [autoscaler.Effects].
func (c *core) Sleep(ctx context.Context, s api.InstanceStatus, _ api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error) {
	return c.call("sleep", s.Instance, func(i *server) (api.InstanceStatus, error) { return i.order(ctx, epoch, api.Asleep, drain.Limit) })
}

// Fence is part of [autoscaler.Effects].
func (c *core) Fence(ctx context.Context, s api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	return c.call("fence", s.Instance, func(i *server) (api.InstanceStatus, error) { return i.order(ctx, epoch, "", 0) })
}

// Stop is part of [autoscaler.Effects].
func (c *core) Stop(_ context.Context, s api.InstanceStatus, _ api.Drain) error {
	if !c.w.pass(c, nil, "%s: stop %s", c.name, s.Instance) {
		return errDead
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if i := c.w.instances[s.Instance]; i != nil {
		i.die()
	}
	return nil
}

// Adapt is part of [autoscaler.Effects]: functions here have no adapters.
func (c *core) Adapt(context.Context, api.InstanceStatus, []api.Adapter) error { return errDead }

// State is part of [autoscaler.Effects].
func (c *core) State(_ context.Context, s api.InstanceStatus) (api.InstanceStatus, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if i := c.w.instances[s.Instance]; i != nil && !c.dead {
		i.s.Seq++
		return i.s, nil
	}
	return api.InstanceStatus{}, errDead
}

// Grant is part of [autoscaler.Effects].
func (c *core) Grant(_ context.Context, g api.Grant) error {
	if !c.w.pass(c, nil, "%s: grant %s", c.name, g.Instance) || c.w.isCut() {
		return errDead
	}
	c.w.entrance().a.Grant(g)
	c.w.pass(c, nil, "%s: grant %s", c.name, g.Instance)
	return nil
}

// Revoke is part of [autoscaler.Effects].
func (c *core) Revoke(ctx context.Context, g api.Grant) error {
	if !c.w.pass(c, nil, "%s: revoke %s", c.name, g.Instance) || c.w.isCut() {
		return errDead
	}
	return c.w.entrance().a.Revoke(ctx, g)
}

// Fail is part of [autoscaler.Effects].
func (c *core) Fail(_ context.Context, f api.FunctionName, err *api.Error) error {
	if !c.w.pass(c, nil, "%s: fail %s: %v", c.name, f, err) || c.w.isCut() {
		return errDead
	}
	c.w.entrance().a.Fail(f, err)
	return nil
}

// ask is a client: it asks until it has an answer, for an activator that is killed takes
// connections with it. Whatever else it is told is lost.
func (w *world) ask(f int) {
	for {
		d := w.entrance()
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"`+functionName(f).Name()+`","messages":[{"role":"user","content":"hi"}]}`))
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		d.a.Handler().ServeHTTP(rec, r.WithContext(d.ctx))
		w.mu.Lock()
		killed := d.dead
		if !killed && (rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), string(functionName(f)))) {
			w.lost = append(w.lost, functionName(f).Name()+": "+rec.Body.String())
			w.note("a client is told %d %s", rec.Code, rec.Body)
		}
		w.mu.Unlock()
		if !killed {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
