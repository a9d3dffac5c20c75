// Package route tracks the instances of one function and picks one for each request. It counts the requests of this
// activator, and others' by fresh reports of load. The rule of [Set.PickFor]:
//
//  1. Instances that are awake, have a free slot and are not avoided.
//  2. Of these, those that have the adapter, if any.
//  3. Of these, the nearest, and among them the cheapest not much busier.
//  4. Of these, the one that has seen most of the prompt, if half of it, unless it is much busier ([slack]).
//  5. Otherwise the one that the session prefers, else the prompt, by a hash: several activators agree.
//  6. Otherwise the least busy. Ties rotate.
//
// An instance that gave a request back is avoided until its next report, or for a short, growing time.
//
// A [Chain] describes a prompt: its text is cut into blocks, whose hashes cover all before and a [Salt], which
// separates owners of caches. A [prefixIndex] records which blocks were sent where.
//
// A Set's owner guards it with a mutex.
package route

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/tombstone"
)

const (
	avoidFirst = 20 * time.Millisecond
	avoidMost  = 2 * time.Second
)

// How late a report of a removed instance can come.
const keepTombstone = 10 * time.Second

// Instance is one instance. Its ID and address are constant while a request holds a slot.
type Instance struct {
	ID api.InstanceID

	// Each pick reads the first fields: two cache lines.
	running  int
	slots    int
	others   int // others' requests, by the last report
	ready    bool
	retired  bool
	shared   time.Time // until then others' requests wait for its slots
	avoid    time.Time // not picked before
	work     *api.Load
	reported time.Time
	place    int    // in the index; none: not in it
	hash     uint64 // of the ID

	status  api.InstanceStatus
	base    *url.URL
	backoff time.Duration // the last avoidance
	refusal string
	using   map[api.ModelName]int // slots
	peak    int                   // slots in use since the last report
}

func (i *Instance) takes() bool { return i.ready && !i.retired }

func (i *Instance) avoided(now time.Time) bool { return !i.avoid.IsZero() && now.Before(i.avoid) }

// Base returns the URL of the instance's root, which must not be changed. The owner's mutex is held, as for the
// other methods.
func (i *Instance) Base() *url.URL { return i.base }

// Status returns the last report.
func (i *Instance) Status() api.InstanceStatus { return i.status }

// Running returns the slots in use.
func (i *Instance) Running() int { return i.running }

// Set holds the instances of one function.
type Set struct {
	slots      int // if not reported
	all        []*Instance
	turn       int
	apart      bool // in several clusters
	tombstones tombstone.Set
	index      prefixIndex
	perToken   float64 // bytes of a prompt; 0: unknown
	scratch    scratch
}

// Slots sets the slots of instances that report none.
func (s *Set) Slots(n int) {
	s.slots = max(n, 1)
	for _, i := range s.all {
		i.slots = s.slotsOf(i.status)
	}
}

func (s *Set) slotsOf(st api.InstanceStatus) int {
	if n := st.Concurrency + st.Waits; n > 0 {
		return n
	}
	return max(s.slots, 1)
}

// Observe applies a report; false: it is outdated or has no usable endpoint.
func (s *Set) Observe(st api.InstanceStatus, now time.Time) bool {
	at := slices.IndexFunc(s.all, func(i *Instance) bool { return i.ID == st.Instance })
	if st.State == api.Gone {
		s.remove(st, at, now)
		return at >= 0
	}
	if s.tombstones.Holds(st.Instance, st.Seq, now) {
		return false
	}
	if at >= 0 && !st.Supersedes(s.all[at].status) {
		return false
	}
	base, err := url.Parse(st.Endpoint.URL(""))
	if err != nil {
		return false
	}
	if at < 0 {
		s.all = append(s.all, &Instance{ID: st.Instance, place: none, hash: Hash(string(st.Instance))})
		at = len(s.all) - 1
	}
	i := s.all[at]
	if lostCache(i.status, st) {
		s.index.Forget(i.place)
	}
	i.status, i.base, i.slots = st, base, s.slotsOf(st)
	i.ready, i.work = st.Ready(), st.Load
	s.apart = s.apart || st.Way > 0 || st.Cost > 0
	i.correct(now)
	s.trim(i, now)
	i.avoid, i.backoff = time.Time{}, 0
	return true
}

// No late report brings the instance at index at (-1: unknown) back.
func (s *Set) remove(st api.InstanceStatus, at int, now time.Time) {
	seq := st.Seq
	if at >= 0 {
		seq = max(seq, s.all[at].status.Seq)
		s.index.Remove(s.all[at].place)
		s.all[at].place = none
		s.all = slices.Delete(s.all, at, at+1)
	}
	s.tombstones.Add(st.Instance, seq, now.Add(keepTombstone))
}

func (i *Instance) free(now time.Time) bool {
	return i.takes() && i.running < i.places() && !i.avoided(now)
}

func (i *Instance) places() int { return i.slots - i.status.Waits }

// A request may wait at a cluster, as reported, or at an instance that others' requests wait for too.
func (i *Instance) queues(now time.Time, w Want) bool {
	most := i.slots
	if i.status.Waits == 0 && now.Before(i.shared) {
		most *= 2
	}
	return !w.FreeSlot && i.takes() && i.running < most && !i.avoided(now)
}

const sharedFor = 2 * time.Second

// Shared records that other activators use i.
func (s *Set) Shared(i *Instance, now time.Time) { i.shared = now.Add(sharedFor) }

// FreeFor reports whether [Set.PickFor] would find an instance.
func (s *Set) FreeFor(now time.Time, w Want, may func(api.InstanceID) bool) bool {
	return slices.ContainsFunc(s.all, func(i *Instance) bool {
		return (i.free(now) || i.queues(now, w)) && (may == nil || may(i.ID)) && w.allows(i)
	})
}

// Free returns the free slots of instances that accept requests.
func (s *Set) Free(now time.Time) (n int) {
	for _, i := range s.all {
		if i.takes() && !i.avoided(now) {
			n += max(0, i.places()-i.running)
		}
	}
	return n
}

// Capacity returns the slots of instances that accept requests.
func (s *Set) Capacity(now time.Time) (n int) {
	for _, i := range s.all {
		if i.takes() && !i.avoided(now) {
			n += i.places()
		}
	}
	return n
}

// Avoid records that i gave a request back. It returns when i may be picked again.
func (s *Set) Avoid(i *Instance, code string, now time.Time) time.Time {
	i.refusal = code
	if now.Before(i.avoid) { // sent at the same time
		return i.avoid
	}
	if i.backoff = min(max(2*i.backoff, avoidFirst), avoidMost); code == api.CodeMoved {
		i.backoff = avoidFirst
	}
	i.avoid = now.Add(i.backoff)
	return i.avoid
}

// NextTry returns when the first avoided instance may be picked; zero: none is avoided.
func (s *Set) NextTry(now time.Time) time.Time {
	var first time.Time
	for _, i := range s.all {
		if i.avoided(now) && (first.IsZero() || i.avoid.Before(first)) {
			first = i.avoid
		}
	}
	return first
}

// Served ends i's avoidance.
func (s *Set) Served(i *Instance) { i.backoff, i.avoid = 0, time.Time{} }

// Awake reports whether an instance is awake. An avoided one counts if it was busy or a request gave way there.
func (s *Set) Awake(now time.Time) bool { return s.AwakeFor(now, Want{}) }

// AwakeFor is [Set.Awake] among those that w allows.
func (s *Set) AwakeFor(now time.Time, w Want) bool {
	return slices.ContainsFunc(s.all, func(i *Instance) bool {
		return i.takes() && w.allows(i) && (!i.avoided(now) || i.refusal == api.CodeBusy || i.refusal == api.CodeMoved)
	})
}

// May reports whether w allows some instance, and all.
func (s *Set) May(w Want) (some, all bool) {
	all = true
	for _, i := range s.all {
		if i.retired || i.base.Host == "" {
			continue
		}
		ok := w.allows(i)
		some, all = some || ok, all && ok
	}
	return some, all
}

// Asleep returns sleepers that w allows, the best first: by lightest sleep, kept prompt, session. kept is about how
// many more tokens the first one has than another.
func (s *Set) Asleep(now time.Time, w Want) (all []*Instance, kept api.Tokens) {
	for _, i := range s.all {
		if !i.retired && w.allows(i) && (i.status.State == api.Asleep || i.avoided(now) && i.refusal == api.CodeAsleep) {
			all = append(all, i)
		}
	}
	if len(all) < 2 {
		return all, 0
	}
	known := s.keptBy(all, w)
	slices.SortStableFunc(all, func(a, b *Instance) int {
		order := cmp.Or(cmp.Compare(a.status.Level, b.status.Level), cmp.Compare(known[b], known[a]))
		if order == 0 && w.Session != 0 {
			order = cmp.Compare(prefers(w.Session, b.hash), prefers(w.Session, a.hash))
		}
		return order
	})
	for _, i := range all[1:] {
		if known[i] < known[all[0]] {
			return all, tokens(known[all[0]])
		}
	}
	return all, 0
}

// keptBy returns the kept blocks of a prompt: by sleep level the most, if half.
func (s *Set) keptBy(sleepers []*Instance, w Want) map[*Instance]int {
	if w.Prefix.Len() == 0 {
		return nil
	}
	known := make(map[*Instance]int, len(sleepers))
	for level := api.LevelAwake; level <= api.Level2; level++ {
		var of places
		for _, i := range sleepers {
			if i.status.Level == level && i.place != none {
				of.Add(i.place)
			}
		}
		depth, seen := s.index.Find(w.Prefix, of, nil)
		if depth == 0 || 2*bytesOf(depth) < bytesOf(w.Prefix.Len()) {
			continue
		}
		for _, i := range sleepers {
			if i.status.Level == level && seen.Has(i.place) {
				known[i] = depth
			}
		}
	}
	return known
}

// Sent records a prompt that goes to i without a pick.
func (s *Set) Sent(i *Instance, w Want, now time.Time) {
	if s.Many() {
		s.learn(i, w.Prefix, now)
	}
}

// Retire stops requests to the present instances, whatever they report.
func (s *Set) Retire() {
	for _, i := range s.all {
		i.retired = true
	}
}

// All returns the set's own slice.
func (s *Set) All() []*Instance { return s.all }

// Best returns the report of the instance that accepts a request soonest.
func (s *Set) Best() (st api.InstanceStatus, ok bool) {
	for _, i := range s.all {
		if !ok || i.status.State.Sooner(st.State) {
			st, ok = i.status, true
		}
	}
	return st, ok
}

// Reports returns all reports, by instance.
func (s *Set) Reports() []api.InstanceStatus {
	out := make([]api.InstanceStatus, 0, len(s.all))
	for _, i := range s.all {
		out = append(out, i.status)
	}
	slices.SortFunc(out, func(a, b api.InstanceStatus) int { return strings.Compare(string(a.Instance), string(b.Instance)) })
	return out
}
