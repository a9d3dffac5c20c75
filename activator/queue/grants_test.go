package queue

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
func (o *grants) waking(id api.InstanceID) bool {
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

// startGrants returns grants that sends the ends of its wakes to the channel.
func startGrants(t *testing.T, answer func(int32, api.Grant) (api.InstanceStatus, error)) (*grants, *fakeWaker, func() outcome, chan error) {
	w := &fakeWaker{answer: answer}
	o := newGrants(w)
	t.Cleanup(o.close)
	ended := make(chan error, 10) // as many as any test begins: the callback must not block
	begin := func() outcome {
		out, _ := o.begin("i", "unix:/s", time.Minute, nil, func(_ *waketrace.Span, _ api.InstanceStatus, err error) { ended <- err })
		return out
	}
	return o, w, begin, ended
}

func TestOneWakeHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, w, begin, ended := startGrants(t, awake)
		if got := begin(); got != noGrant {
			t.Errorf("without a grant: got %v", got)
		}
		o.grant(grant(1))
		if got := begin(); got != wakeBegun {
			t.Errorf("first: got %v", got)
		}
		for range 5 {
			if got := begin(); got != wakeUnderWay {
				t.Errorf("further: got %v", got)
			}
		}
		if !o.waking("i") {
			t.Error("not waking")
		}
		if err := <-ended; err != nil || o.waking("i") || w.calls.Load() != 1 {
			t.Errorf("end: %v, waking %t, %d calls", err, o.waking("i"), w.calls.Load())
		}
		if got := begin(); got != wakeBegun {
			t.Errorf("the grant stands for the next sleep: got %v", got)
		}
		<-ended
	})
}

func TestGrantExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, _ := startGrants(t, awake)
		o.grant(grant(1))
		time.Sleep(time.Hour)
		if got := begin(); got != noGrant {
			t.Errorf("expired: got %v", got)
		}
	})
}

// TestClocksDiffer: a grant's lifetime is measured by its receiver's clock.
func TestClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := startGrants(t, awake)
		g := grant(1)
		g.Life, g.Expires = time.Hour, time.Now().Add(-24*time.Hour) // the sender's clock is a day behind
		o.grant(g)
		time.Sleep(time.Hour - time.Second)
		if got := begin(); got != wakeBegun {
			t.Errorf("before its life is over: got %v", got)
		}
		<-ended
		g.Epoch, g.Expires = 2, time.Now().Add(24*time.Hour)
		o.grant(g)
		time.Sleep(time.Hour + time.Second)
		if got := begin(); got != noGrant {
			t.Errorf("after its life: got %v", got)
		}
	})
}

func TestRevokeWaitsForTheWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := startGrants(t, awake)
		g := grant(3)
		o.grant(g)
		begin()
		began := time.Now()
		if err := o.revoke(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Second || o.waking("i") {
			t.Errorf("returned after %s, waking %t; want the wake's second", took, o.waking("i"))
		}
		<-ended
		for _, epoch := range []uint64{1, 3} {
			if o.grant(grant(epoch)) {
				t.Errorf("a grant with epoch %d was accepted after 3 was revoked", epoch)
			}
		}
		if got := begin(); got != noGrant {
			t.Errorf("after the revocation: got %v", got)
		}
		if !o.grant(grant(4)) {
			t.Error("a newer grant was refused")
		}
		if got := begin(); got != wakeBegun {
			t.Errorf("under the newer grant: got %v", got)
		}
		if err := o.revoke(t.Context(), g); err != nil { // late: the wake is not under it
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
		o, _, begin, ended := startGrants(t, awake)
		o.grant(grant(1))
		begin()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := o.revoke(ctx, grant(1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		<-ended
		if got := begin(); got != noGrant {
			t.Errorf("the grant was taken back all the same: got %v", got)
		}
	})
}

func TestFailuresPauseThenDropTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no memory")
		o, w, begin, ended := startGrants(t, func(int32, api.Grant) (api.InstanceStatus, error) { return api.InstanceStatus{}, broken })
		o.grant(grant(1))
		for n := range attempts {
			if got := begin(); got != wakeBegun {
				t.Fatalf("attempt %d: got %v", n, got)
			}
			if err := <-ended; !errors.Is(err, broken) {
				t.Fatalf("attempt %d: got %v", n, err)
			}
			if n == attempts-1 {
				break
			}
			if got := begin(); got != wakePaused {
				t.Errorf("right after failure %d: got %v", n, got)
			}
			time.Sleep(pauseFirst << n)
		}
		if got := begin(); got != noGrant || w.calls.Load() != attempts {
			t.Errorf("after %d failures: got %v and %d calls", attempts, got, w.calls.Load())
		}
	})
}

func TestStaleEpochDropsTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := startGrants(t, func(int32, api.Grant) (api.InstanceStatus, error) {
			return api.InstanceStatus{}, api.Errorf(http.StatusConflict, api.CodeStaleEpoch, "epoch 1 is lower than 2")
		})
		o.grant(grant(1))
		begin()
		<-ended
		if got := begin(); got != noGrant {
			t.Errorf("got %v", got)
		}
	})
}

func TestAnAnswerThatIsNotAwakeIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := startGrants(t, func(int32, api.Grant) (api.InstanceStatus, error) {
			return api.InstanceStatus{State: api.Asleep}, nil
		})
		o.grant(grant(1))
		begin()
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
}

func TestCloseCancelsWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, begin, ended := startGrants(t, awake)
		o.grant(grant(1))
		begin()
		o.close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		if got := begin(); got != noGrant {
			t.Errorf("after Close: got %v", got)
		}
	})
}
