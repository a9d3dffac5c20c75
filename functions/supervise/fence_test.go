package supervise_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// TestFence: calls on their way become invalid, operations under way continue, and nothing else changes.
func TestFence(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		fence := func(epoch uint64) error {
			_, err := s.Fence(t.Context(), control.FenceRequest{Epoch: epoch})
			return err
		}
		wantCode(t, "fence 5", fence(5), "")
		if st := s.Status(); st.Epoch != 5 || st.State != api.Awake {
			t.Errorf("epoch %d, %s; want 5, awake", st.Epoch, st.State)
		}
		wantCode(t, "sleep 4", sleep(s, 4, 1, 0), api.CodeStaleEpoch)
		wantCode(t, "sleep 6", sleep(s, 6, 1, 0), "")
		wantCode(t, "fence 8", fence(8), "")
		wantCode(t, "wake 7", wake(s, 7), api.CodeStaleEpoch)
		wantCode(t, "fence 7", fence(7), api.CodeStaleEpoch)
		// A grant's expiry is another machine's time: only the epoch counts.
		if _, err := s.Wake(t.Context(), api.Grant{Epoch: 8, Expires: time.Now().Add(-second)}); err != nil {
			t.Errorf("a grant that is over by this machine's clock: %v", err)
		}
	})
}

// TestBeginsAsleep: there is no process until the first wake.
func TestBeginsAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, traits: inPlace, log: process.NewLog(50, nil)}
		s, err := supervise.New(supervise.Config{Asleep: true, Runtime: w, Start: w.start, Log: w.log, Report: w.report,
			Status: api.InstanceStatus{Instance: "i", Function: "default/f", Concurrency: 2, Epoch: 1, Seq: 1 << 62}})
		if err != nil {
			t.Fatal(err)
		}
		w.supervisor = s
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		if st := s.Status(); st.State != api.Asleep || st.Level != api.Level2 || st.PID != 0 || len(w.children) > 0 {
			t.Errorf("%s at level %d, process %d; want asleep at level 2 without one", st.State, st.Level, st.PID)
		}
		if st := s.Status(); st.Seq <= 1<<62 {
			t.Errorf("report %d, want higher ones than the last of before, though the clock is behind", st.Seq)
		}
		wantCode(t, "wake", wake(s, 9), "")
		if st := s.Status(); st.State != api.Awake {
			t.Errorf("%s, want awake", st.State)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
