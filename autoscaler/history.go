// The [History] explains past states; no decision depends on it. A change is a new state or place of an instance, or one
// of its memory by more than 1/32: measured amounts vary. A change that is dropped is first applied to the beginning.
package autoscaler

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

const (
	historyAge    = 24 * time.Hour
	MostChanges   = 8192
	MostDecisions = 4096
	mostReason    = 1000 // bytes of a decision's reason and error
)

// othersOf begins the ID of the holder that stands for other programs.
const othersOf = "others of "

// History is safe for concurrent use: readers don't wait for decisions.
type History struct {
	mu        sync.Mutex // guards all below
	since     time.Time
	seq       uint64
	forgotten uint64 // readers with a lower number get everything
	begin     map[api.InstanceID]admin.Held
	now       map[api.InstanceID]admin.Held
	changes   []numbered[admin.Held]
	decisions []numbered[api.Decision]
}

type numbered[T any] struct {
	of  T
	seq uint64
}

// NewHistory returns a history with higher numbers than an earlier one's, whose readers get everything.
func NewHistory(now time.Time) *History {
	first := uint64(max(now.UnixMicro(), 1))
	return &History{since: now, seq: first, forgotten: first, begin: map[api.InstanceID]admin.Held{}, now: map[api.InstanceID]admin.Held{}}
}

// Set records what an instance holds from h.At on.
func (r *History) Set(h admin.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, known := r.now[h.Instance]; known && same(old, h) {
		return
	}
	h.Devices = slices.Clone(h.Devices)
	r.now[h.Instance] = h
	r.put(h)
}

// Drop records that an instance is gone.
func (r *History) Drop(now time.Time, id api.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, known := r.now[id]; known {
		h.At, h.State, h.Host, h.PerDevice = now, api.Gone, 0, 0
		delete(r.now, id)
		r.put(h)
	}
}

// SetDevices records what other programs use of the devices.
func (r *History) SetDevices(now time.Time, devices []inventory.Device) {
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

func (r *History) others() (list []api.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.now {
		if strings.HasPrefix(string(id), othersOf) {
			list = append(list, id)
		}
	}
	return list
}

// Decided records a decision.
func (r *History) Decided(d api.Decision) {
	d.Reason, d.Error = clip(d.Reason), clip(d.Error)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decisions = add(r, r.decisions, d, MostDecisions, func(d api.Decision) time.Time { return d.At }, func(api.Decision) {})
}

// After returns what is newer than an earlier answer, or everything if seq is not kept or another process's.
func (r *History) After(seq uint64) admin.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := admin.History{Since: r.since, Seq: r.seq}
	if h.Whole = seq < r.forgotten || seq > r.seq; h.Whole {
		seq = 0
		h.Held = slices.SortedFunc(maps.Values(r.begin), func(a, b admin.Held) int { return cmp.Compare(a.Instance, b.Instance) })
	}
	h.Changes, h.Decisions = newer(r.changes, seq), newer(r.decisions, seq)
	return h
}

// put keeps a change. The caller holds mu.
func (r *History) put(h admin.Held) {
	r.changes = add(r, r.changes, h, MostChanges, func(h admin.Held) time.Time { return h.At }, func(c admin.Held) {
		if r.since = c.At; c.State == api.Gone {
			delete(r.begin, c.Instance)
		} else {
			r.begin[c.Instance] = c
		}
	})
}

// add drops entries that are too old. If there are too many it drops an extra tenth of most: the rest is seldom moved.
// The caller holds mu.
func add[T any](r *History, list []numbered[T], v T, most int, at func(T) time.Time, dropped func(T)) []numbered[T] {
	r.seq++
	list = append(list, numbered[T]{v, r.seq})
	n, drop := len(list), 0
	if n > most {
		drop = n - most + most/10
	}
	for drop < n-1 && at(v).Sub(at(list[drop].of)) > historyAge {
		drop++
	}
	for _, old := range list[:drop] {
		dropped(old.of)
		r.forgotten = max(r.forgotten, old.seq)
	}
	return slices.Delete(list, 0, drop)
}

func newer[T any](list []numbered[T], seq uint64) (all []T) {
	k, _ := slices.BinarySearchFunc(list, seq+1, func(e numbered[T], seq uint64) int { return cmp.Compare(e.seq, seq) })
	for _, e := range list[k:] {
		all = append(all, e.of)
	}
	return all
}

func same(a, b admin.Held) bool {
	return a.State == b.State && a.Function == b.Function && a.Node == b.Node && near(a.Host, b.Host) && near(a.PerDevice, b.PerDevice) && slices.Equal(a.Devices, b.Devices)
}

func near(a, b api.Bytes) bool { return max(a-b, b-a) <= max(a, b)/32 }

func clip(text string) string {
	if len(text) <= mostReason {
		return text
	}
	return strings.ToValidUTF8(text[:mostReason], "") + "…"
}
