package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// shelf is a scripted snapshot.
type shelf struct {
	w     *world
	saved *supervise.Saved // nil: there is none
	fails int              // saves that fail
	takes time.Duration    // of a save
}

func (s *shelf) Restore(_ runtime.Launch, start func(process.Spec) (supervise.Child, error), lines func([]byte)) (supervise.Child, supervise.Saved) {
	if s.saved == nil {
		return nil, supervise.Saved{}
	}
	s.w.call("restore")
	child, err := start(process.Spec{Path: "criu", Lines: lines})
	if err != nil {
		return nil, supervise.Saved{}
	}
	return child, *s.saved
}

func (s *shelf) Restored(took time.Duration, failed error) {
	if failed != nil {
		s.saved = nil
		s.w.call("delete: " + failed.Error())
		return
	}
	s.w.call(fmt.Sprintf("restored in %v", took))
}

func (s *shelf) Save(ctx context.Context, _ api.Bytes, of supervise.Saved) error {
	s.w.call(fmt.Sprintf("save %d, loaded in %v, %s", of.PID, of.Load, of.Canary))
	if err := nap(ctx, s.takes); err != nil {
		return err
	}
	if s.fails > 0 {
		s.fails--
		return errors.New("external socket")
	}
	of.Endpoint = "http://runtime"
	s.saved = &of
	return nil
}

func (s *shelf) on(cfg *supervise.Config) { cfg.Snapshots, cfg.Canary = s, true }

func TestSnapshotIsMadeAndRestored(t *testing.T) {
	w := &world{load: 20 * second, answers: []string{"seven"}}
	f := &shelf{w: w}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(20 * second)
		wantStates(t, w, comesUp)
		if _, refused := s.Gate().Enter(); refused != nil {
			t.Fatal(refused)
		}
		time.Sleep(5 * second)
		wantCalls(t, w, "start 100") // a request runs
		s.Gate().Leave()
		time.Sleep(3 * second)
		wantCalls(t, w, "canary", "canary", `save 100, loaded in 20s, "seven"`)
		if err := sleep(s, 2, api.Level2, second); err != nil {
			t.Fatal(err)
		}
		wantCalls(t, w, "stop 100 after 5s")
		_ = w.states()
		w.set(func() { w.load = 2 * second })
		if err := wake(s, 3); err != nil {
			t.Fatal(err)
		}
		wantStates(t, w, comesUp)
		wantCalls(t, w, "restore", "start 101", "canary", "restored in 2s")
		time.Sleep(time.Minute)
		wantCalls(t, w) // it is not saved again
	}, f.on)
}

// TestSnapshotIsWrong: after a restore that fails in any way a usual start follows at once.
func TestSnapshotIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world)
		calls []string
	}{
		"another answer": {func(w *world) { w.answers = []string{"eight"} },
			[]string{"restore", "start 100", "canary", `delete: the restored model does not answer as it did: to the canary it said "seven" then and says "eight" now`, "stop 100 after 0s", "start 101"}},
		"no answer": {func(w *world) { w.answers = []string{""} },
			[]string{"restore", "start 100", "canary", `delete: the restored model does not answer as it did: to the canary it said "seven" then and says nothing now`, "stop 100 after 0s", "start 101"}},
		"criu ends": {func(w *world) { w.exits = true },
			[]string{"restore", "start 100", "delete: the runtime ended: exit status 3", "start 101"}},
		"it hangs": {func(w *world) { w.hangs = true },
			[]string{"restore", "start 100", "delete: context deadline exceeded; the last try: context deadline exceeded", "stop 100 after 0s", "start 101"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{answers: []string{"seven"}}
			c.spoil(w)
			f := &shelf{w: w, saved: &supervise.Saved{Endpoint: "http://runtime", Canary: runtime.Answer{By: "/way", Text: "seven"}, Load: 10 * second}}
			run(t, w, func(t *testing.T, s *supervise.Supervisor) {
				if name == "it hangs" {
					time.Sleep(71 * second)
				}
				calls := w.made()
				if len(calls) > len(c.calls) {
					calls = calls[:len(c.calls)]
				}
				if got, want := fmt.Sprintf("%q", calls), fmt.Sprintf("%q", c.calls); got != want {
					t.Errorf("calls:\n got %s\nwant %s", got, want)
				}
				if n := s.Status().Restarts; n != 0 && name != "criu ends" {
					t.Errorf("%d restarts are counted, want none", n)
				}
			}, f.on)
		})
	}
}

func TestSnapshotFails(t *testing.T) {
	w := &world{answers: []string{"seven"}}
	f := &shelf{w: w, fails: 3}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(20 * second)
		save := `save 100, loaded in 0s, "seven"`
		wantCalls(t, w, "start 100", "canary", "canary", save, save, save)
		wantStates(t, w, comesUp)
		if now := s.Status().Snapshot; now == nil || now.Missing != "external socket" {
			t.Errorf("the snapshot is reported as %+v", now)
		}
	}, f.on)
	w = &world{answers: []string{"seven"}}
	f = &shelf{w: w, takes: time.Hour}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) { // a stop ends it
		time.Sleep(5 * second)
		if _, err := s.Stop(context.Background(), control.StopRequest{}); err != nil {
			t.Error(err)
		}
		wantStates(t, w, comesUp+" draining gone")
	}, f.on)
	w = &world{answers: []string{"seven", "eight"}}
	f = &shelf{w: w}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) { // answers that differ can't be compared
		time.Sleep(20 * second)
		wantCalls(t, w, "start 100", "canary", "canary")
	}, f.on)
}
