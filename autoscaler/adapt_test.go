package autoscaler

import (
	"errors"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// A function that only declares other adapters keeps its instances, which are told, awake or asleep.
func TestAdapt(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.spec.Runtime.Adapters = []api.Adapter{{Name: "x", Path: "1"}} })
		declare := func(list ...api.Adapter) {
			f.spec.Runtime.Adapters = list
			w.a.PutFunction(f.spec)
			pass(10 * time.Second)
		}
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		if n := w.count("adapt"); n != 0 {
			t.Errorf("told %d times of what it was started with", n)
		}
		declare(api.Adapter{Name: "x", Path: "1"}, api.Adapter{Name: "y", Path: "2"})
		declare(api.Adapter{Name: "x", Path: "1"}, api.Adapter{Name: "y", Path: "2"})
		if all, right := w.count("adapt"), w.count("adapt a-0001 x=1,y=2"); all != 1 || right != 1 || w.state("a-0001") != api.Awake {
			t.Errorf("told %d times, %d of them right:\n%s", all, right, w.transcript())
		}
		pass(2 * time.Minute)
		w.adapts = []error{errors.New("connection reset"), api.Errorf(404, "", "the path is not there")}
		declare()
		if n := w.count("adapt a-0001 "); n != 4 || w.state("a-0001") != api.Asleep {
			t.Errorf("told %d times, want it tried until it has none:\n%s", n, w.transcript())
		}
		// A runtime that can't is replaced.
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		w.adapts = []error{api.Errorf(501, "", "at its start only")}
		declare(api.Adapter{Name: "z", Path: "3"})
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		if w.state("a-0001") != api.Gone || w.state("a-0002") != api.Awake || w.count("adapt a-0002") != 0 {
			t.Errorf("want a new instance:\n%s", w.transcript())
		}
		// With anything else changed the instances are others.
		f.spec.Runtime.Args = []string{"--other"}
		declare(api.Adapter{Name: "z", Path: "4"})
		if w.state("a-0002") != api.Gone {
			t.Errorf("an instance with the old runtime stays:\n%s", w.transcript())
		}
	})
}
