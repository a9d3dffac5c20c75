package decide

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// face is what claims see of a function that may have to give way for them, and of one of its
// instances. While it is the same, what was found for them among others stands, whatever was put.
type face struct {
	inst struct {
		id                    api.InstanceID
		phase                 phase
		doing                 Doing
		state                 api.State
		level                 api.Level
		reserved, settling    bool
		since, retry, settles time.Time
		failures              int
		memory                api.Memory
	}
	need                      api.Memory
	learned                   uint64 // counts how often what was learned of it has changed
	declared, busy, wanted    bool
	live, desired, awake, ill int
	priority, minScale        int
	sleepLevel                api.Level
	lastRequest, needed       time.Time
	changes                   uint64
}

// show works out f's faces, and notes what is there where they are not what they were.
func (w *World) show(f *fn, now time.Time) {
	front := face{need: f.Need, learned: f.learned, declared: f.declared, busy: f.busy(), wanted: f.Waiting == 0 || f.live() > 0,
		live: f.live(), desired: f.desired, awake: f.awake, ill: f.ill, priority: f.Spec.Priority, minScale: f.Spec.MinScale, sleepLevel: f.Spec.SleepLevel}
	if f.asleep > 0 || !f.busy() { // it matters since when it is not wanted
		front.lastRequest = f.LastRequest
		if len(f.NeededAt) > 0 {
			front.needed = f.NeededAt[0]
		}
	}
	if f.ill > 0 || f.live() > f.desired { // and of each since when
		front.changes = f.edition
	}
	same := len(f.faces) == len(f.is)
	was := f.faces
	f.faces = make([]face, len(f.is))
	for k, i := range f.is {
		c := front
		c.inst.id, c.inst.phase, c.inst.doing, c.inst.state, c.inst.level, c.inst.reserved = i.Status.Instance, i.phase, i.Doing, i.Status.State, i.Status.Level, i.reserved()
		c.inst.settling = i.settling(now)
		c.inst.since, c.inst.retry, c.inst.settles, c.inst.failures, c.inst.memory = i.Since, i.RetryAt, i.Settles, i.Failures, i.Status.Memory
		f.faces[k] = c
		same = same && was[k] == c
	}
	at := f.at
	f.at = nil
	for _, i := range f.is {
		f.at = append(f.at, i.at...)
	}
	if !same || !slices.Equal(at, f.at) {
		w.stir(at)
		w.stir(f.at)
	}
}

// stir notes that those who are on devices are not what they were.
func (w *World) stir(devices []int32) {
	for _, d := range devices {
		w.mark(d, false)
		w.marks[d].stirred = true
	}
}

// alike says whether a and b expect the same of instances.
func alike(a, b *inventory.Experience) bool {
	return a.Load == b.Load && a.Wake == b.Wake && a.Sleep == b.Sleep && a.Asleep == b.Asleep && a.Arrivals == b.Arrivals
}
