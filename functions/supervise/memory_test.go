package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// gpus is a fake measurement of GPU memory.
type gpus struct {
	w     *world
	held  api.Bytes
	found bool
	err   error
	takes time.Duration
	deaf  bool // it takes that long even after ctx has ended
	asked int
}

func (g *gpus) look(ctx context.Context, _ int) (api.Bytes, bool, error) {
	g.w.set(func() { g.asked++ })
	if g.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if err := nap(ctx, g.takes); err != nil {
		return 0, false, err
	}
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	return g.held, g.found, g.err
}

// withGPUs runs f on an instance with a GPU.
func withGPUs(t *testing.T, g *gpus, f func(t *testing.T, s *supervise.Supervisor)) {
	t.Helper()
	g.w = &world{traits: inPlace}
	run(t, g.w, f, func(c *supervise.Config) {
		c.GPUs, c.Status.Devices = g.look, []api.DeviceID{"GPU-a"}
	})
}

// holds returns the GPU memory in the reports since the last call, by state; "?" while it is being measured.
func (g *gpus) holds() (out []string) {
	synctest.Wait()
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	for _, r := range g.w.reports {
		s := fmt.Sprintf("%s %s", r.State, r.Memory.PerDevice)
		if r.Measuring {
			s += "?"
		}
		if len(out) == 0 || out[len(out)-1] != s {
			out = append(out, s)
		}
	}
	g.w.reports = nil
	return out
}

func (g *gpus) want(t *testing.T, want ...string) {
	t.Helper()
	if got := g.holds(); !slices.Equal(got, want) {
		t.Errorf("reports %q, want %q", got, want)
	}
}

func TestGPUMemoryIsReported(t *testing.T) {
	g := &gpus{held: 70 * api.GiB, found: true}
	withGPUs(t, g, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(2 * second)
		g.want(t, "starting 0 B", "awake 0 B", "awake 70 GiB")
		g.held = 40 * api.GiB
		wantCode(t, "sleep", sleep(s, 2, api.Level1, 0), "")
		g.want(t, "draining 70 GiB", "asleep 0 B?", "asleep 40 GiB")
		wantCode(t, "wake", wake(s, 3), "")
		g.want(t, "awake 0 B")
		g.held, g.found = 0, false // it was seen before: it holds nothing
		wantCode(t, "sleep", sleep(s, 4, api.Level1, 0), "")
		g.want(t, "draining 0 B", "asleep 0 B?", "asleep 1 MiB")
	})
}

// TestGPUMemoryTakesLong: a slow measurement delays neither a sleep nor an end, and a result from another state is dropped.
func TestGPUMemoryTakesLong(t *testing.T) {
	g := &gpus{held: 70 * api.GiB, found: true, takes: 500 * time.Millisecond}
	withGPUs(t, g, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(1200 * time.Millisecond) // it is being asked
		begin := time.Now()
		wantCode(t, "sleep", sleep(s, 2, api.Level1, 0), "")
		if took := time.Since(begin); took > 0 {
			t.Errorf("the sleep took %v", took)
		}
		g.w.set(func() { g.held = 2 * api.GiB })
		time.Sleep(second)
		g.want(t, "starting 0 B", "awake 0 B", "draining 0 B", "asleep 0 B?", "asleep 2 GiB")
	})
}

// TestGPUMemoryIsFoundHiddenAtTheLast: that the runtime is invisible is found out as it falls asleep.
func TestGPUMemoryIsFoundHiddenAtTheLast(t *testing.T) {
	g := &gpus{takes: 500 * time.Millisecond, deaf: true}
	withGPUs(t, g, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(1200 * time.Millisecond) // it is being asked
		wantCode(t, "sleep", sleep(s, 2, api.Level1, 0), "")
		time.Sleep(second)
		g.want(t, "starting 0 B", "awake 0 B", "draining 0 B", "asleep 0 B?", "asleep 0 B")
	})
}

func TestGPUMemoryThatNobodyTells(t *testing.T) {
	for name, tt := range map[string]struct {
		gpus
		asked int
	}{
		"it hangs":                {gpus{takes: time.Hour}, 1},
		"it fails":                {gpus{err: errors.New("no driver")}, 2},
		"it does not see runtime": {gpus{}, 1}, // in a container
	} {
		t.Run(name, func(t *testing.T) {
			g := &tt.gpus
			withGPUs(t, g, func(t *testing.T, s *supervise.Supervisor) {
				time.Sleep(5 * second)
				wantCode(t, "sleep", sleep(s, 2, api.Level1, 0), "")
				time.Sleep(5 * second)
				if st := s.Status(); st.Memory.PerDevice != 0 || st.Measuring {
					t.Errorf("%s, measuring %v; want nothing known", st.Memory.PerDevice, st.Measuring)
				}
				if g.asked != tt.asked {
					t.Errorf("asked %d times, want %d", g.asked, tt.asked)
				}
			})
		})
	}
}

// TestARuntimeSaysHowFullItsGPUIs: as it falls asleep; an earlier line, which may be a client's prompt, does not count.
func TestARuntimeSaysHowFullItsGPUIs(t *testing.T) {
	const said = "(Worker_TP%d pid=7) INFO 10-26 12:00:00 [gpu_worker.py:144] Sleep mode freed 70.00 GiB memory, %s GiB memory is still in use."
	w := &world{traits: inPlace, fall: second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.print(fmt.Appendf(nil, said, 0, "79.00"))
		asleep := later(func() error { return sleep(s, 2, api.Level1, 0) })
		w.print(fmt.Appendf(nil, said, 0, "1.50"))
		w.print(fmt.Appendf(nil, said, 1, "2.50"))
		wantCode(t, "sleep", <-asleep, "")
		if st := s.Status(); st.State != api.Asleep || st.DeviceUse != 5*api.GiB/2 {
			t.Errorf("%s, %s; want asleep, and the fullest: 2.5 GiB", st.State, st.DeviceUse)
		}
		wantCode(t, "wake", wake(s, 3), "")
		if st := s.Status(); st.DeviceUse != 0 {
			t.Errorf("awake it says %s", st.DeviceUse)
		}
	})
}

// TestAStartWithoutRoom: too little free GPU memory is reported apart from other failures.
func TestAStartWithoutRoom(t *testing.T) {
	for line, want := range map[string]bool{
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": true,
		"OSError: no such model": false,
	} {
		w := &world{exits: true, prints: line}
		run(t, w, func(t *testing.T, s *supervise.Supervisor) {
			if st := s.Status(); st.State != api.Unhealthy || st.NoRoom != want {
				t.Errorf("%q: %s, no room %v; want %v", line, st.State, st.NoRoom, want)
			}
		})
	}
}
