// Package apitest is the contract of the autoscaler's effects, as a suite for every implementation.
//
//  1. An instance that is started reports that it is awake.
//  2. Orders may be repeated: the second changes nothing and succeeds.
//  3. An order with an older epoch than another is refused.
//  4. An instance that ends, by an order or by itself, is reported as gone.
//  5. For an unknown instance, State returns gone and Stop succeeds. The other orders fail.
//  6. A call whose context has ended fails.
package apitest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Effects is the part of autoscaler.Effects that concerns instances.
type Effects interface {
	Start(ctx context.Context, f api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error)
	Wake(ctx context.Context, i api.InstanceStatus, g api.Grant) (api.InstanceStatus, error)
	Sleep(ctx context.Context, i api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error)
	Fence(ctx context.Context, i api.InstanceStatus, epoch uint64) (api.InstanceStatus, error)
	Stop(ctx context.Context, i api.InstanceStatus, drain api.Drain) error
	State(ctx context.Context, i api.InstanceStatus) (api.InstanceStatus, error)
}

// World is one implementation, with nothing running.
type World struct {
	Effects  Effects
	Function api.Function
	// Await fails the test if no report with the state comes.
	Await func(id api.InstanceID, s api.State) api.InstanceStatus
	Kill  func(id api.InstanceID)
}

// drain is longer than an instance without requests takes.
var drain = api.Drain{Limit: time.Minute}

// Run calls test with a world from in, which takes it down.
func Run(t *testing.T, in func(t *testing.T, test func(t *testing.T, w World))) {
	for _, c := range []struct {
		name string
		test func(*testing.T, World)
	}{
		{"an instance sleeps and wakes, and orders may be repeated", sleepsAndWakes},
		{"older orders are refused", refusesOlder},
		{"an instance that is stopped is gone", stops},
		{"an instance that dies is gone", dies},
		{"an instance that is not there", unknown},
		{"a context that has ended", canceled},
	} {
		t.Run(c.name, func(t *testing.T) { in(t, c.test) })
	}
}

// start waits until the instance is awake under epoch 10.
func (w World) start(t *testing.T) api.InstanceStatus {
	t.Helper()
	id, err := w.Effects.Start(t.Context(), w.Function, "tiny-0001", api.Grant{Instance: "tiny-0001", Function: w.Function.Name, Epoch: 10})
	if err != nil {
		t.Fatal(err)
	}
	s := w.Await(id, api.Awake)
	if s.Instance != id || s.Function != w.Function.Name || s.Endpoint == "" {
		t.Fatalf("got a report of %q of %q at %q, want of %q of %q and where it is", s.Instance, s.Function, s.Endpoint, id, w.Function.Name)
	}
	return s
}

func (w World) is(t *testing.T, i api.InstanceStatus, want api.State, level api.Level) {
	t.Helper()
	s, err := w.Effects.State(t.Context(), i)
	if err != nil || s.State != want || s.Level != level {
		t.Errorf("got %s at level %d, %v, want %s at level %d", s.State, s.Level, err, want, level)
	}
}

func sleepsAndWakes(t *testing.T, w World) {
	i := w.start(t)
	w.is(t, i, api.Awake, 0)
	for _, level := range []api.Level{api.Level1, api.Level1, api.Level2} {
		s, err := w.Effects.Sleep(t.Context(), i, level, 20, drain)
		if err != nil || s.State != api.Asleep || s.Level != level || s.Epoch != 20 {
			t.Fatalf("sleep: got %s at level %d, epoch %d, %v, want asleep at level %d, epoch 20", s.State, s.Level, s.Epoch, err, level)
		}
		w.is(t, i, api.Asleep, level)
	}
	for range 2 {
		s, err := w.Effects.Wake(t.Context(), i, api.Grant{Instance: i.Instance, Function: i.Function, Epoch: 30})
		if err != nil || s.State != api.Awake || s.Epoch != 30 {
			t.Fatalf("wake: got %s, epoch %d, %v, want awake, epoch 30", s.State, s.Epoch, err)
		}
	}
	w.is(t, i, api.Awake, 0)
}

func refusesOlder(t *testing.T, w World) {
	i := w.start(t)
	if _, err := w.Effects.Sleep(t.Context(), i, api.Level1, 20, drain); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if s, err := w.Effects.Fence(t.Context(), i, 40); err != nil || s.State != api.Asleep || s.Epoch != 40 {
			t.Fatalf("fence: got %s, epoch %d, %v, want asleep, epoch 40", s.State, s.Epoch, err)
		}
	}
	_, err := w.Effects.Wake(t.Context(), i, api.Grant{Instance: i.Instance, Function: i.Function, Epoch: 39})
	stale(t, "wake", err)
	_, err = w.Effects.Sleep(t.Context(), i, api.Level2, 39, drain)
	stale(t, "sleep", err)
	w.is(t, i, api.Asleep, api.Level1)
	if s, err := w.Effects.Wake(t.Context(), i, api.Grant{Instance: i.Instance, Function: i.Function, Epoch: 40}); err != nil || s.State != api.Awake {
		t.Errorf("under the epoch of the fence: got %s, %v, want awake", s.State, err)
	}
}

func stale(t *testing.T, order string, err error) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Status != http.StatusConflict || e.Code != api.CodeStaleEpoch {
		t.Errorf("%s under an older epoch: got %v, want status 409 and the code %s", order, err, api.CodeStaleEpoch)
	}
}

func stops(t *testing.T, w World) {
	i := w.start(t)
	i.Epoch = 20
	for range 2 {
		if err := w.Effects.Stop(t.Context(), i, drain); err != nil {
			t.Fatal(err)
		}
		w.Await(i.Instance, api.Gone)
		w.is(t, i, api.Gone, 0)
	}
}

func dies(t *testing.T, w World) {
	i := w.start(t)
	w.Kill(i.Instance)
	if s := w.Await(i.Instance, api.Gone); !s.Supersedes(i) {
		t.Errorf("got report %d of the end, want one that supersedes report %d", s.Seq, i.Seq)
	}
	w.is(t, i, api.Gone, 0)
	if err := w.Effects.Stop(t.Context(), i, drain); err != nil {
		t.Errorf("stop: got %v, want nothing", err)
	}
}

func unknown(t *testing.T, w World) {
	i := w.start(t)
	w.Kill(i.Instance)
	w.Await(i.Instance, api.Gone)
	if _, err := w.Effects.Wake(t.Context(), i, api.Grant{Instance: i.Instance, Epoch: 30}); err == nil {
		t.Error("wake: got no error")
	}
	if _, err := w.Effects.Sleep(t.Context(), i, api.Level1, 30, drain); err == nil {
		t.Error("sleep: got no error")
	}
	if _, err := w.Effects.Fence(t.Context(), i, 30); err == nil {
		t.Error("fence: got no error")
	}
	never := api.InstanceStatus{Instance: "never-0001", Function: w.Function.Name}
	w.is(t, never, api.Gone, 0)
	if err := w.Effects.Stop(t.Context(), never, drain); err != nil {
		t.Errorf("stop of one that never was: got %v, want nothing", err)
	}
}

func canceled(t *testing.T, w World) {
	i := w.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Effects.State(ctx, i); err == nil {
		t.Error("state: got no error")
	}
	if _, err := w.Effects.Wake(ctx, i, api.Grant{Instance: i.Instance, Epoch: 30}); err == nil {
		t.Error("wake: got no error")
	}
	if _, err := w.Effects.Sleep(ctx, i, api.Level1, 30, drain); err == nil {
		t.Error("sleep: got no error")
	}
	if _, err := w.Effects.Fence(ctx, i, 30); err == nil {
		t.Error("fence: got no error")
	}
	w.is(t, i, api.Awake, 0)
}
