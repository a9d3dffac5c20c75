package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// fetcher makes models ready for w.
type fetcher struct {
	w    *world
	took time.Duration
	errs []error // of the first tries
}

func (f *fetcher) prepare(ctx context.Context, report func(float64)) (string, error) {
	f.w.call("fetch")
	const steps = 100
	for i := range steps {
		report(float64(i) / steps)
		if err := nap(ctx, f.took/steps); err != nil {
			f.w.call("fetch cancelled")
			return "", err
		}
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return "", err
	}
	return "/models/m", nil
}

func (f *fetcher) config(c *supervise.Config) { c.Prepare = f.prepare }

const fetched = "starting(fetching) " + comesUp

func TestPrepare(t *testing.T) {
	w := &world{load: 5 * second}
	f := &fetcher{w: w, took: 20 * time.Minute} // more than the start may take
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(10*time.Minute + second)
		st := s.Status()
		if st.State != api.Starting || st.Stage != "fetching" || st.Progress < 0.49 || st.Progress > 0.51 {
			t.Errorf("%s(%s) %v in the middle of the fetch, want starting(fetching) 0.5", st.State, st.Stage, st.Progress)
		}
		_, refused := s.Gate().Enter()
		if refused.Code != api.CodeLoading || refused.RetryAfter < 9*time.Minute || refused.RetryAfter > 11*time.Minute {
			t.Errorf("refused with %s for %v, want loading for ten minutes", refused.Code, refused.RetryAfter)
		}
		wantCode(t, "wake", wake(s, 1), "")
		wantStates(t, w, fetched)
		wantCalls(t, w, "fetch", "launch /models/m", "start 100")
		if st := s.Status(); st.LoadTime != 5*second || st.Progress != 0 {
			t.Errorf("load time %v, progress %v; want 5s, without the fetch, and none", st.LoadTime, st.Progress)
		}
		// It is fetched for each start, including a restart.
		w.children[0].end("signal: killed")
		wantCode(t, "wake", wake(s, 1), "")
		wantCalls(t, w, "fetch", "launch /models/m", "start 101")
	}, f.config)
}

// TestNoProgram: without a program to run it, no model is fetched.
func TestNoProgram(t *testing.T) {
	w := &world{findErr: errors.New("no srv in PATH")}
	f := &fetcher{w: w, took: second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 1), api.CodeStartFailed)
		wantCalls(t, w)
		if st := s.Status(); !strings.Contains(st.Message, "no srv in PATH") {
			t.Errorf("it says %q", st.Message)
		}
	}, f.config)
}

// TestStillStarting: while a runtime does not answer, the status has the reason of the last failure; once it is awake it has none.
func TestStillStarting(t *testing.T) {
	w := &world{probeErr: errors.New("connection refused")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		woken := later(func() error { return wake(s, 1) })
		time.Sleep(3 * second)
		if st := s.Status(); st.State != api.Starting || st.Message != "the last try failed: connection refused" {
			t.Errorf("%s: %q", st.State, st.Message)
		}
		w.set(func() { w.probeErr = nil })
		wantCode(t, "wake", <-woken, "")
		if st := s.Status(); st.Message != "" {
			t.Errorf("awake it says %q", st.Message)
		}
	})
}

func TestProgressIsReportedFiveTimesASecond(t *testing.T) {
	w := &world{}
	f := &fetcher{w: w, took: 2 * second} // a hundred shares
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 1), "")
		synctest.Wait()
		n := 0
		for _, r := range w.reports {
			if r.Progress > 0 {
				n++
			}
		}
		if n < 8 || n > 10 {
			t.Errorf("%d reports of progress in two seconds, want about ten", n)
		}
	}, f.config)
}

func TestSleepCancelsFetch(t *testing.T) {
	w := &world{traits: inPlace}
	f := &fetcher{w: w, took: time.Hour}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		woken := later(func() error { return wake(s, 1) })
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "wake", <-woken, api.CodeStaleEpoch)
		if st := s.Status(); st.State != api.Asleep || st.Level != api.Level2 || st.PID != 0 || st.Message != "" {
			t.Errorf("%+v: want asleep at level 2 without a process and without complaint", st)
		}
		wantCalls(t, w, "fetch", "fetch cancelled")
		f.took = 0
		wantCode(t, "wake", wake(s, 3), "")
		wantStates(t, w, "starting(fetching) asleep2 "+fetched)
	}, f.config)
}

// A wake that comes while the fetch is being cancelled starts another one.
func TestWakeAfterACancelledFetch(t *testing.T) {
	w := &world{}
	fetches := 0
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		slept := later(func() error { return sleep(s, 2, 1, 0) })
		woken := later(func() error { return wake(s, 3) })
		wantCode(t, "wake", <-woken, "")
		wantCode(t, "sleep", <-slept, api.CodeStaleEpoch)
		if st := s.Status(); fetches != 2 || st.Restarts != 0 {
			t.Errorf("%d fetches, %d restarts; want 2, 0", fetches, st.Restarts)
		}
	}, func(c *supervise.Config) {
		c.Prepare = func(ctx context.Context, _ func(float64)) (string, error) {
			fetches++
			if fetches > 1 {
				return "m", nil
			}
			<-ctx.Done()
			time.Sleep(second) // it ends slowly
			return "", ctx.Err()
		}
	})
}

func TestStopCancelsFetch(t *testing.T) {
	w := &world{}
	f := &fetcher{w: w, took: time.Hour}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		began := time.Now()
		if _, err := s.Stop(t.Context(), control.StopRequest{Drain: second}); err != nil || time.Since(began) != 0 {
			t.Errorf("Stop: %v after %v, want none, at once", err, time.Since(began))
		}
		wantCalls(t, w, "fetch", "fetch cancelled")
	}, f.config)
}

func TestFetchFails(t *testing.T) {
	w := &world{}
	f := &fetcher{w: w, errs: []error{errors.New("connection reset"), errors.New("connection reset")}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 1), "") // at the third try
		wantCalls(t, w, "fetch", "fetch", "fetch", "launch /models/m", "start 100")
		wantStates(t, w, "starting(fetching) unhealthy starting(fetching) unhealthy "+fetched)
	}, f.config)
}

// forGood is a permanent error.
type forGood struct{}

func (forGood) Error() string   { return "sha256 differs" }
func (forGood) Permanent() bool { return true }

func TestPermanentFailureIsGivenUpAtOnce(t *testing.T) {
	w := &world{}
	f := &fetcher{w: w, took: second, errs: []error{fmt.Errorf("fetch m: %w", forGood{})}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		err := wake(s, 1)
		wantCode(t, "wake", err, api.CodeStartFailed)
		if !strings.Contains(err.Error(), "sha256 differs") {
			t.Errorf("error %q, want the reason", err)
		}
		time.Sleep(time.Hour)
		wantCalls(t, w, "fetch")
		wantCode(t, "another wake", wake(s, 1), "")
	}, f.config)
}

func TestReady(t *testing.T) {
	w := &world{traits: inPlace, rise: second}
	var fail error
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 1), "")
		wantCalls(t, w, "start 100", "ready http://runtime closed")
		if got := s.Status().Adapters; len(got) != 1 || got[0] != "a" {
			t.Errorf("adapters %v, want those that the hook has set", got)
		}
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "sleep 1", "wake from 1", "ready http://runtime closed")
		wantCode(t, "sleep", sleep(s, 3, 1, 0), "")
		w.set(func() { fail = errors.New("adapter a: no such folder") })
		err := wake(s, 4)
		wantCode(t, "wake", err, api.CodeStartFailed)
		if !strings.Contains(err.Error(), "adapter a: no such folder") {
			t.Errorf("error %q, want the reason", err)
		}
	}, func(c *supervise.Config) {
		c.Ready = func(_ context.Context, e api.Endpoint) error {
			gate := "open"
			if w.supervisor.Gate().Refusal() != nil {
				gate = "closed"
			}
			w.supervisor.Reports().SetAdapters([]api.ModelName{"a"}, nil)
			w.call("ready " + string(e) + " " + gate)
			w.mu.Lock()
			defer w.mu.Unlock()
			return fail
		}
	})
}

func TestAdaptersAreReported(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		synctest.Wait()
		w.set(func() { w.reports = nil })
		s.Reports().SetAdapters([]api.ModelName{"a", "b"}, nil)
		synctest.Wait()
		s.Reports().SetAdapters([]api.ModelName{"a", "b"}, nil) // no change
		s.Reports().SetAdapters(nil, nil)
		synctest.Wait()
		if len(w.reports) != 2 || len(w.reports[0].Adapters) != 2 || len(w.reports[1].Adapters) != 0 || w.reports[0].State != api.Awake {
			t.Errorf("reports %+v, want one with two adapters, one with none", w.reports)
		}
	})
}

// TestRetryAfter checks that clients' Retry-After follows from measured starts.
func TestRetryAfter(t *testing.T) {
	w := &world{traits: inPlace, load: 30 * second, rise: 8 * second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		want := func(what string, d time.Duration) {
			t.Helper()
			synctest.Wait()
			if _, refused := s.Gate().Enter(); refused == nil || refused.RetryAfter != d {
				t.Errorf("%s: %+v, want to come back after %v", what, refused, d)
			}
		}
		want("a first start", 10*second)
		wantCode(t, "wake", wake(s, 1), "")
		wantCode(t, "sleep", sleep(s, 1, 1, 0), "")
		want("asleep, never woken", 30*second)
		woken := later(func() error { return wake(s, 2) })
		wantCode(t, "wake", <-woken, "")
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		want("asleep", 8*second)
		woken = later(func() error { return wake(s, 2) })
		want("waking", 8*second)
		time.Sleep(6 * second)
		want("waking for six seconds", 2*second)
		time.Sleep(1900 * time.Millisecond)
		want("nearly awake", second)
		wantCode(t, "wake", <-woken, "")
		w.set(func() { w.load = 40 * second })
		w.children[0].end("signal: killed")
		want("a crash", 30*second+100*time.Millisecond)
		time.Sleep(10*second + 100*time.Millisecond)
		want("starting again", 20*second)
		time.Sleep(25 * second)
		want("longer than the last time", second)
		wantCode(t, "wake", wake(s, 2), "")
		_, _ = s.Gate().Enter()
		slept := later(func() error { return sleep(s, 3, 1, 0) })
		want("draining to sleep", 8*second)
		s.Gate().Leave()
		wantCode(t, "sleep", <-slept, "")
	})
}

func TestRetryAfterWhenGivenUp(t *testing.T) {
	w := &world{exits: true}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		_ = wake(s, 1)
		if _, refused := s.Gate().Enter(); refused.Code != api.CodeUnhealthy || refused.RetryAfter != 10*second || strings.Contains(refused.Message, "exit status 3") {
			t.Errorf("%+v: want unhealthy, ten seconds, and nothing of the runtime's", refused)
		}
		if message := s.Status().Message; !strings.Contains(message, "exit status 3") {
			t.Errorf("the operator is told %q, want the exit status", message)
		}
	})
}

var _ runtime.Runtime = (*world)(nil)
