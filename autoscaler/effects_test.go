package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Start is part of [Effects].
func (w *fleet) Start(_ context.Context, spec api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("start %s", id)
	f := w.functions[spec.Name]
	if f == nil {
		return "", errors.New("there is no such program")
	}
	if f.failStarts > 0 && f.load == 0 {
		f.failStarts--
		return "", errors.New("exec: no such file")
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
			i.s.Message = cmp.Or(f.says, "the model file is broken")
			w.to(i, api.Gone, 0)
			return
		}
		i.s.LoadTime = f.load
		w.to(i, api.Awake, 0)
	})
	return id, nil
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
func (w *fleet) Sleep(ctx context.Context, s api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error) {
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
	if i.f.busySleeps > 0 {
		i.f.busySleeps--
		return api.InstanceStatus{}, api.Errorf(http.StatusConflict, api.CodeBusy, "1 requests still run after the time to drain: the instance stays awake")
	}
	if w.drain(ctx, i, drain.Limit); ctx.Err() != nil { // who leaves before the runtime was told ends the drain
		w.to(i, api.Awake, i.s.Level)
		return api.InstanceStatus{}, context.Cause(ctx)
	}
	w.mu.Unlock()
	select {
	case <-time.After(i.f.sleep):
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) { // its runtime was told, and falls asleep in any case
			w.wg.Go(func() {
				time.Sleep(i.f.sleep)
				w.mu.Lock()
				defer w.mu.Unlock()
				if !i.dead {
					w.to(i, api.Asleep, level)
				}
			})
		}
		w.mu.Lock()
		return api.InstanceStatus{}, context.Cause(ctx)
	}
	w.mu.Lock()
	if i.dead {
		return api.InstanceStatus{}, errors.New("connection reset")
	}
	i.s.SleepTime = i.f.sleep
	w.to(i, api.Asleep, level)
	return i.s, nil
}

func (w *fleet) drain(ctx context.Context, i *fakeInstance, limit time.Duration) {
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
	case <-ctx.Done():
		w.mu.Lock()
		i.idle = nil
		return
	}
	w.mu.Lock()
}

// Stop is part of [Effects].
func (w *fleet) Stop(ctx context.Context, s api.InstanceStatus, drain api.Drain) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("stop %s", s.Instance)
	if i := w.instances[s.Instance]; i != nil {
		if i.s.State == api.Awake {
			w.drain(ctx, i, drain.Limit)
		}
		if !i.dead {
			w.to(i, api.Gone, 0)
		}
	}
	return nil
}

// Fence is part of [Effects].
func (w *fleet) Fence(_ context.Context, s api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("fence %s", s.Instance)
	i := w.instances[s.Instance]
	switch {
	case i == nil:
		return api.InstanceStatus{}, errors.New("connection refused")
	case epoch < i.s.Epoch:
		return i.s, api.Errorf(409, api.CodeStaleEpoch, "epoch %d is older than %d", epoch, i.s.Epoch)
	}
	i.s.Epoch = epoch
	i.s.Seq++
	return i.s, nil
}

// Adapt is part of [Effects].
func (w *fleet) Adapt(_ context.Context, s api.InstanceStatus, list []api.Adapter) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := make([]string, len(list))
	for k, a := range list {
		names[k] = string(a.Name) + "=" + a.Path
	}
	w.log("adapt %s %s", s.Instance, strings.Join(names, ","))
	i := w.instances[s.Instance]
	if i == nil {
		return errors.New("connection refused")
	}
	if len(w.adapts) > 0 {
		err := w.adapts[0]
		w.adapts = w.adapts[1:]
		return err
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
	if f == nil {
		return errors.New("there is no such function")
	}
	for range f.queue {
		w.refused[name] = append(w.refused[name], fmt.Sprintf("%d %s: %s", err.Status, err.Code, err.Message))
	}
	w.log("fail %s", name)
	f.queue = nil
	w.demand(f)
	return nil
}
