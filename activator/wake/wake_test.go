package wake

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// waking reports whether a wake of id is in progress.
func (o *Once) waking(id api.InstanceID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.instances[id]
	return p != nil && p.flight != nil
}

// fakeWaker takes a second for a wake and then acts as configured.
type fakeWaker struct {
	calls  atomic.Int32
	answer func(n int32, g api.Grant) (api.InstanceStatus, error)
}

func (f *fakeWaker) Wake(ctx context.Context, _ api.Endpoint, g api.Grant) (api.InstanceStatus, error) {
	n := f.calls.Add(1)
	select {
	case <-time.After(time.Second):
		return f.answer(n, g)
	case <-ctx.Done():
		return api.InstanceStatus{}, context.Cause(ctx)
	}
}

func awake(int32, api.Grant) (api.InstanceStatus, error) {
	return api.InstanceStatus{State: api.Awake}, nil
}

func grant(epoch uint64) api.Grant {
	return api.Grant{Instance: "i", Function: "default/m", Epoch: epoch, Expires: time.Now().Add(time.Hour)}
}

// start returns a Once that sends the ends of its wakes to the channel.
func start(t *testing.T, answer func(int32, api.Grant) (api.InstanceStatus, error)) (*Once, *fakeWaker, func() Outcome, chan error) {
	w := &fakeWaker{answer: answer}
	o := New(w)
	t.Cleanup(o.Close)
	ended := make(chan error, 10) // as many as any test begins: the callback must not block
	begin := func() Outcome {
		out, _ := o.Begin("i", "unix:/s", time.Minute, nil, func(_ *waketrace.Span, _ api.InstanceStatus, err error) { ended <- err })
		return out
	}
	return o, w, begin, ended
}

func TestOneWakeHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, w, begin, ended := start(t, awake)
		if got := begin(); got != NoGrant {
			t.Errorf("without a grant: got %v", got)
		}
		o.Grant(grant(1))
		if got := begin(); got != Begun {
			t.Errorf("first: got %v", got)
		}
		for range 5 {
			if got := begin(); got != UnderWay {
				t.Errorf("further: got %v", got)
			}
		}
		if !o.waking("i") {
			t.Error("not waking")
		}
		if err := <-ended; err != nil || o.waking("i") || w.calls.Load() != 1 {
			t.Errorf("end: %v, waking %t, %d calls", err, o.waking("i"), w.calls.Load())
		}
		if got := begin(); got != Begun {
			t.Errorf("the grant stands for the next sleep: got %v", got)
		}
		<-ended
	})
}

func TestGrantExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, _ := start(t, awake)
		o.Grant(grant(1))
		time.Sleep(time.Hour)
		if got := begin(); got != NoGrant {
			t.Errorf("expired: got %v", got)
		}
	})
}

// TestClocksDiffer: a grant's lifetime is measured by its receiver's clock.
func TestClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := start(t, awake)
		g := grant(1)
		g.Life, g.Expires = time.Hour, time.Now().Add(-24*time.Hour) // the sender's clock is a day behind
		o.Grant(g)
		time.Sleep(time.Hour - time.Second)
		if got := begin(); got != Begun {
			t.Errorf("before its life is over: got %v", got)
		}
		<-ended
		g.Epoch, g.Expires = 2, time.Now().Add(24*time.Hour)
		o.Grant(g)
		time.Sleep(time.Hour + time.Second)
		if got := begin(); got != NoGrant {
			t.Errorf("after its life: got %v", got)
		}
	})
}

func TestRevokeWaitsForTheWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := start(t, awake)
		g := grant(3)
		o.Grant(g)
		begin()
		began := time.Now()
		if err := o.Revoke(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Second || o.waking("i") {
			t.Errorf("returned after %s, waking %t; want the wake's second", took, o.waking("i"))
		}
		<-ended
		for _, epoch := range []uint64{1, 3} {
			if o.Grant(grant(epoch)) {
				t.Errorf("a grant with epoch %d was accepted after 3 was revoked", epoch)
			}
		}
		if got := begin(); got != NoGrant {
			t.Errorf("after the revocation: got %v", got)
		}
		if !o.Grant(grant(4)) {
			t.Error("a newer grant was refused")
		}
		if got := begin(); got != Begun {
			t.Errorf("under the newer grant: got %v", got)
		}
		if err := o.Revoke(t.Context(), g); err != nil { // late: the wake is not under it
			t.Fatal(err)
		}
		if !o.waking("i") {
			t.Error("a late revocation waited for a wake under a newer grant")
		}
		<-ended
	})
}

func TestRevokeGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := start(t, awake)
		o.Grant(grant(1))
		begin()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := o.Revoke(ctx, grant(1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		<-ended
		if got := begin(); got != NoGrant {
			t.Errorf("the grant was taken back all the same: got %v", got)
		}
	})
}

func TestFailuresPauseThenDropTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no memory")
		o, w, begin, ended := start(t, func(int32, api.Grant) (api.InstanceStatus, error) { return api.InstanceStatus{}, broken })
		o.Grant(grant(1))
		for n := range attempts {
			if got := begin(); got != Begun {
				t.Fatalf("attempt %d: got %v", n, got)
			}
			if err := <-ended; !errors.Is(err, broken) {
				t.Fatalf("attempt %d: got %v", n, err)
			}
			if n == attempts-1 {
				break
			}
			if got := begin(); got != Paused {
				t.Errorf("right after failure %d: got %v", n, got)
			}
			time.Sleep(pauseFirst << n)
		}
		if got := begin(); got != NoGrant || w.calls.Load() != attempts {
			t.Errorf("after %d failures: got %v and %d calls", attempts, got, w.calls.Load())
		}
	})
}

func TestStaleEpochDropsTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := start(t, func(int32, api.Grant) (api.InstanceStatus, error) {
			return api.InstanceStatus{}, api.Errorf(http.StatusConflict, api.CodeStaleEpoch, "epoch 1 is lower than 2")
		})
		o.Grant(grant(1))
		begin()
		<-ended
		if got := begin(); got != NoGrant {
			t.Errorf("got %v", got)
		}
	})
}

func TestAnAnswerThatIsNotAwakeIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := start(t, func(int32, api.Grant) (api.InstanceStatus, error) {
			return api.InstanceStatus{State: api.Asleep}, nil
		})
		o.Grant(grant(1))
		begin()
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
}

func TestCloseCancelsWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := start(t, awake)
		o.Grant(grant(1))
		begin()
		o.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		if got := begin(); got != NoGrant {
			t.Errorf("after Close: got %v", got)
		}
	})
}
