package autoscaler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestChaos runs random worlds in which instances die, calls fail and reports
// are lost. The fleet itself checks at each change that memory is never given
// twice. In the end everybody was answered and everything has gone to rest.
func TestChaos(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			inWorld(t, api.Bytes(2+r.IntN(3))*api.GiB, func(w *fleet) { chaos(w, r) })
		})
	}
}

// chaos makes functions, trouble and requests, and checks the end.
func chaos(w *fleet, r *rand.Rand) {
	var fs []*fakeFunction
	for k := range 2 + r.IntN(5) {
		fs = append(fs, w.add(fmt.Sprintf("f%d", k), api.Bytes(1+r.IntN(7))*256*api.MiB, func(f *fakeFunction) {
			f.load = time.Duration(1+r.IntN(4000)) * time.Millisecond
			f.wake = time.Duration(1+r.IntN(800)) * time.Millisecond
			f.sleep = time.Duration(1+r.IntN(400)) * time.Millisecond
			f.asleep = f.awake * api.Bytes(r.IntN(50)) / 100
			f.shared = f.awake * api.Bytes(k%3) / 3 // what its instances have in common; of some nothing
			f.spec.MaxScale = 1 + r.IntN(3)
			f.spec.SleepAfter = time.Duration(1+r.IntN(20)) * time.Second
			f.spec.UnloadAfter = time.Duration(1+r.IntN(60)) * time.Second
			f.spec.Priority = r.IntN(3)
			f.spec.StartTimeout, f.spec.WakeTimeout = 20*time.Second, 5*time.Second
		}))
	}
	for range 400 {
		pass(time.Duration(r.IntN(1000)) * time.Millisecond)
		f := fs[r.IntN(len(fs))]
		switch r.IntN(12) {
		case 0:
			w.killAny(r)
		case 1:
			w.trouble(f, r)
		case 2, 3:
			// nobody comes
		default:
			w.request(f, 1+r.IntN(3), time.Duration(r.IntN(1500))*time.Millisecond)
		}
	}
	w.mu.Lock()
	w.mute, w.deaf = false, false
	for _, f := range fs {
		f.failStarts, f.failWakes, f.failSleeps = 0, 0, 0
	}
	w.mu.Unlock()
	pass(20 * time.Minute)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range fs {
		if len(f.queue) > 0 || f.running != 0 {
			w.t.Errorf("%s: %d wait and %d run for ever", f.spec.Name, len(f.queue), f.running)
		}
	}
	if len(w.instances) > 0 {
		w.t.Errorf("%d instances are left", len(w.instances))
	}
}

// killAny ends some instance.
func (w *fleet) killAny(r *rand.Rand) {
	w.mu.Lock()
	var ids []api.InstanceID
	for _, f := range w.functions {
		for _, i := range w.sorted(f) {
			ids = append(ids, i.s.Instance)
		}
	}
	w.mu.Unlock()
	if len(ids) > 0 {
		w.kill(ids[r.IntN(len(ids))])
	}
}

// trouble makes something fail.
func (w *fleet) trouble(f *fakeFunction, r *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r.IntN(5) {
	case 0:
		f.failStarts = r.IntN(4)
	case 1:
		f.failWakes = r.IntN(4)
	case 2:
		f.failSleeps = r.IntN(4)
	case 3:
		w.mute = !w.mute
	case 4:
		w.deaf = !w.deaf
	}
}
