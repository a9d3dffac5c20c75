// Package history remembers who held what of the host and of each GPU, and what was decided, for whoever wants to know why things
// were as they were at a time. It decides nothing, has no clock, and is no part of any decision.
//
// What it costs is bounded by three numbers: nothing is older than [Age], there are at most [MostChanges] changes and
// [MostDecisions] decisions (about 4 MiB together), and what is beyond goes, the oldest first. A change is that of an instance's state
// or place, or of what it holds by more than a thirty-second part: amounts that are measured differ a little all the time.
//
//  1. The owner of all decisions says what an instance holds ([Recorder.Set]); if it is what was known, nothing happens.
//  2. A change gets the next number and is kept. What is forgotten at the other end is first applied to the beginning, so that beginning
//     and changes always add up to what is held now.
//  3. A reader asks for what is newer than the last number that it knows ([Recorder.After]). One that knows a number that is no longer
//     kept, or one of another process, is told everything.
//
// A [Recorder] is safe for many goroutines: readers don't wait for decisions.
package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Bounds of what is kept.
const (
	Age           = 24 * time.Hour
	MostChanges   = 8192
	MostDecisions = 4096
	mostReason    = 1000 // bytes of a decision's reason and error
)

// othersOf is the holder that stands for other programs on a device.
const othersOf = "others of "

// Recorder keeps the history. The zero value is not usable: see [New].
type Recorder struct {
	mu        sync.Mutex // guards what follows
	since     time.Time
	seq       uint64
	forgotten uint64 // the last number that is not kept; readers that know less are told everything
	begin     map[api.InstanceID]admin.Held
	now       map[api.InstanceID]admin.Held
	changes   []change
	decisions []decision
}

type (
	change struct {
		admin.Held
		seq uint64
	}
	decision struct {
		api.Decision
		seq uint64
	}
)

// New makes a recorder that knows of nothing. Its numbers are higher than those of one that was made before, so that a reader of that
// one is told everything.
func New(now time.Time) *Recorder {
	first := uint64(max(now.UnixMicro(), 1))
	return &Recorder{since: now, seq: first, forgotten: first, begin: map[api.InstanceID]admin.Held{}, now: map[api.InstanceID]admin.Held{}}
}

// Set says what an instance holds from h.At on. h.Devices is not kept.
func (r *Recorder) Set(h admin.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, known := r.now[h.Instance]; known && same(old, h) {
		return
	}
	h.Devices = slices.Clone(h.Devices)
	r.now[h.Instance] = h
	r.put(h)
}

// Drop says that an instance is gone.
func (r *Recorder) Drop(now time.Time, id api.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, known := r.now[id]; known {
		h.At, h.State, h.Host, h.PerDevice = now, api.Gone, 0, 0
		delete(r.now, id)
		r.put(h)
	}
}

// SetDevices says which devices there are, and what other programs use of them.
func (r *Recorder) SetDevices(now time.Time, devices []inventory.Device) {
	there := map[api.InstanceID]bool{}
	for _, d := range devices {
		if id := api.InstanceID(othersOf + d.ID); d.Others > 0 && !d.IsHost() {
			there[id] = true
			r.Set(admin.Held{At: now, Instance: id, Node: d.Node, Devices: []api.DeviceID{d.ID}, State: api.Awake, PerDevice: d.Others})
		}
	}
	for _, id := range r.others() {
		if !there[id] {
			r.Drop(now, id)
		}
	}
}

func (r *Recorder) others() (list []api.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.now {
		if strings.HasPrefix(string(id), othersOf) {
			list = append(list, id)
		}
	}
	return list
}

// Decided keeps a decision.
func (r *Recorder) Decided(d api.Decision) {
	d.Reason, d.Error = clip(d.Reason), clip(d.Error)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	r.decisions = append(r.decisions, decision{d, r.seq})
	if old, first := len(r.decisions), r.decisions[0]; old > MostDecisions || d.At.Sub(first.At) > Age {
		n := atLeast(old, MostDecisions, func(k int) bool { return d.At.Sub(r.decisions[k].At) > Age })
		r.forget(r.decisions[n-1].seq)
		r.decisions = slices.Delete(r.decisions, 0, n)
	}
}

// After is what is newer than a number that an earlier answer had; 0 is everything.
func (r *Recorder) After(seq uint64) admin.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := admin.History{Since: r.since, Seq: r.seq}
	if h.Whole = seq < r.forgotten || seq > r.seq; h.Whole {
		seq = 0
		h.Held = slices.SortedFunc(maps.Values(r.begin), func(a, b admin.Held) int { return cmp.Compare(a.Instance, b.Instance) })
	}
	for _, c := range r.changes[newer(r.changes, seq, func(c change) uint64 { return c.seq }):] {
		h.Changes = append(h.Changes, c.Held)
	}
	for _, d := range r.decisions[newer(r.decisions, seq, func(d decision) uint64 { return d.seq }):] {
		h.Decisions = append(h.Decisions, d.Decision)
	}
	return h
}

// put keeps a change. The caller holds mu.
func (r *Recorder) put(h admin.Held) {
	r.seq++
	r.changes = append(r.changes, change{h, r.seq})
	if old := len(r.changes); old > MostChanges || h.At.Sub(r.changes[0].At) > Age {
		n := atLeast(old, MostChanges, func(k int) bool { return h.At.Sub(r.changes[k].At) > Age })
		for _, c := range r.changes[:n] {
			if r.since = c.At; c.State == api.Gone {
				delete(r.begin, c.Instance)
			} else {
				r.begin[c.Instance] = c.Held
			}
		}
		r.forget(r.changes[n-1].seq)
		r.changes = slices.Delete(r.changes, 0, n)
	}
}

// forget notes that what has a number up to seq may no longer be there. The caller holds mu.
func (r *Recorder) forget(seq uint64) { r.forgotten = max(r.forgotten, seq) }

// atLeast is how many of n go: those that are too old, and a tenth of most where there are too many, so that what is left is
// moved seldom.
func atLeast(n, most int, tooOld func(k int) bool) int {
	drop := 0
	if n > most {
		drop = n - most + most/10
	}
	for drop < n-1 && tooOld(drop) {
		drop++
	}
	return max(drop, 1)
}

// newer is the index of the first of a list whose number is above seq.
func newer[T any](list []T, seq uint64, of func(T) uint64) int {
	k, _ := slices.BinarySearchFunc(list, seq+1, func(t T, seq uint64) int { return cmp.Compare(of(t), seq) })
	return k
}

// same says whether what is held differs by nothing that matters.
func same(a, b admin.Held) bool {
	return a.State == b.State && a.Function == b.Function && a.Node == b.Node && near(a.Host, b.Host) && near(a.PerDevice, b.PerDevice) && slices.Equal(a.Devices, b.Devices)
}

// near says whether two amounts differ by less than a thirty-second part of the greater.
func near(a, b api.Bytes) bool { return max(a-b, b-a) <= max(a, b)/32 }

func clip(text string) string {
	if len(text) <= mostReason {
		return text
	}
	return strings.ToValidUTF8(text[:mostReason], "") + "…"
}
