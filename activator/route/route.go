// Package route tracks the instances of one function and picks the one for the next request.
//
// It decides by the requests that this activator itself has sent and not seen finish. Reports tell whether an
// instance accepts requests, how many at once, and where. A runtime's report of its load corrects the count while it
// is fresh: a missing report does not stop the traffic.
//
// The rule of [Set.PickFor], in order:
//
// 1. Only instances that are awake, have a free slot and are not being avoided.
//  2. Of these, the ones that have loaded the requested adapter or run requests for it, if any; otherwise those that
//     load it on demand.
//  3. Of these, if they are in several clusters, those with the shortest way, and among them the cheapest ones that
//     are not much busier.
//  4. Of these, the one that has seen most of the request's prompt, if it has seen half of it and
//     is not much busier than the others.
//  5. Otherwise the one that the request's session prefers, or without a session the beginning of its prompt, if it
//     is not much busier than the others. The preference is a hash, so several activators agree without knowing
//     anything.
//  6. Otherwise the one with the smallest load, the share of its slots in use.
//  7. Ties rotate, so that the first of several idle instances is not always the same.
//
// For "much busier" see [slack]. A prompt that all requests share spreads over more instances as the requests grow.
//
// An instance that gave a request back is avoided until its next report, or for a short, growing time, whichever ends
// first: its report may be on the way, or lost.
//
// # Prompts
//
// A set records which instances have seen the beginning of a request, so that the request can go where its prompt is
// in the model server's cache.
//
// A request's prefix is a [Chain]: the text that its prompt is rendered from (system, tools and messages, in this
// order) is cut into blocks, and each block's hash covers all that comes before it. Two requests share a block only
// if they are equal up to its end. The text is hashed as the client wrote it: a client that continues a conversation
// repeats its bytes. White space and escapes count, so two clients that write the same conversation differently share
// nothing.
//
// A chain begins with a [Salt], which separates owners whose caches are separate: requests with different salts never
// share a block, for each block of the index records its salt.
//
// An [prefixIndex] remembers, for the instances of one function, which blocks were sent where:
//
//  1. [prefixIndex.Learn] records that a chain was sent to an instance. Its cost depends on the new part only.
//  2. [prefixIndex.Find] returns how much of a chain any of some instances has seen, and which ones. It checks a few
//     blocks only: an instance that has seen a block has seen those before it, so a binary search finds the longest
//     known prefix.
//  3. If the index is full, the end of the least recently used chain is forgotten.
//  4. [prefixIndex.Forget] forgets an instance that has gone, or that has slept and lost its cache.
//  5. [prefixIndex.Trim] forgets the least recently used blocks at an instance, down to the size that its cache reports:
//     model servers evict in that order.
//
// It is an estimate: it knows neither which blocks a model server has evicted nor the requests of other activators.
//
// It holds no text.
//
// A Set is not safe for concurrent use: a mutex of its owner must guard it.
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

// The first and the longest avoidance after an instance gave a request back.
const (
	avoidFirst = 20 * time.Millisecond
	avoidMost  = 2 * time.Second
)

// keepTombstone is how late a report of a removed instance can come.
const keepTombstone = 10 * time.Second

// Instance is one instance as this activator sees it. Its ID and address are constant while a request holds a slot;
// the rest belongs to the [Set].
type Instance struct {
	ID api.InstanceID

	// The fields that each pick reads come first: they take two cache lines.
	running  int
	slots    int
	others   int       // requests of others in its runtime, by its last report
	ready    bool      // by its last report
	retired  bool      // accepts no further requests, see [Set.Retire]
	shared   time.Time // until then others' requests are taken to wait for its slots
	avoid    time.Time // not picked before
	work     *api.Load // its runtime's load, by its last report
	reported time.Time
	place    int    // in the index; none: not in it
	hash     uint64 // of the ID

	status  api.InstanceStatus
	base    *url.URL
	backoff time.Duration         // the last avoidance
	refusal string                // the code that caused the avoidance
	using   map[api.ModelName]int // slots in use by adapter
	peak    int                   // the most slots in use since the last report
}

// takes reports whether i accepts requests, by its own report.
func (i *Instance) takes() bool { return i.ready && !i.retired }

func (i *Instance) avoided(now time.Time) bool { return !i.avoid.IsZero() && now.Before(i.avoid) }

// Base returns the URL of the instance's root. It must not be changed. Call it while holding the owner's mutex.
func (i *Instance) Base() *url.URL { return i.base }

// Status returns the last report. Call it while holding the owner's mutex.
func (i *Instance) Status() api.InstanceStatus { return i.status }

// Running returns the number of slots in use. Call it while holding the owner's mutex.
func (i *Instance) Running() int { return i.running }

// Set holds the instances of one function.
type Set struct {
	slots      int // of an instance that reports none
	all        []*Instance
	turn       int
	apart      bool // some are in other clusters
	tombstones tombstone.Set
	index      prefixIndex
	perToken   float64 // bytes of a prompt per token, as clients write it; 0: unknown
	scratch    scratch
}

// Slots sets the number of slots of instances that report none.
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

// Observe applies a report. It returns false for one that is outdated or has no usable endpoint.
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

// remove removes the instance at index at (-1: unknown) and remembers it, so that a late report does not bring it
// back.
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

// free reports whether i accepts a request now and has a free slot.
func (i *Instance) free(now time.Time) bool {
	return i.takes() && i.running < i.places() && !i.avoided(now)
}

// places returns how many requests i runs at once.
func (i *Instance) places() int { return i.slots - i.status.Waits }

// queues reports whether i accepts a request that waits there, in one order with the requests of others. A cluster says
// how many it accepts. An instance accepts as many as it has slots if requests of other activators wait for these too.
func (i *Instance) queues(now time.Time, w Want) bool {
	most := i.slots
	if i.status.Waits == 0 && now.Before(i.shared) {
		most *= 2
	}
	return !w.FreeSlot && i.takes() && i.running < most && !i.avoided(now)
}

// sharedFor is how long an instance counts as shared after a request had to wait for a slot there.
const sharedFor = 2 * time.Second

// Shared records that a request had to wait for a slot of i, so that other activators use it too.
func (s *Set) Shared(i *Instance, now time.Time) { i.shared = now.Add(sharedFor) }

// FreeFor reports whether [Set.PickFor] would find an instance.
func (s *Set) FreeFor(now time.Time, w Want, may func(api.InstanceID) bool) bool {
	return slices.ContainsFunc(s.all, func(i *Instance) bool {
		return (i.free(now) || i.queues(now, w)) && (may == nil || may(i.ID)) && w.allows(i)
	})
}

// Free returns the number of free slots of instances that accept requests.
func (s *Set) Free(now time.Time) (n int) {
	for _, i := range s.all {
		if i.takes() && !i.avoided(now) {
			n += max(0, i.places()-i.running)
		}
	}
	return n
}

// Capacity returns the number of slots of instances that accept requests.
func (s *Set) Capacity(now time.Time) (n int) {
	for _, i := range s.all {
		if i.takes() && !i.avoided(now) {
			n += i.places()
		}
	}
	return n
}

// Avoid records that i gave a request back with code, or could not be reached. It returns when i may be picked again.
func (s *Set) Avoid(i *Instance, code string, now time.Time) time.Time {
	i.refusal = code
	if now.Before(i.avoid) { // requests that were sent at the same time come back too
		return i.avoid
	}
	if i.backoff = min(max(2*i.backoff, avoidFirst), avoidMost); code == api.CodeMoved {
		i.backoff = avoidFirst
	}
	i.avoid = now.Add(i.backoff)
	return i.avoid
}

// NextTry returns when the first of the avoided instances may be picked again; zero if none is avoided.
func (s *Set) NextTry(now time.Time) time.Time {
	var first time.Time
	for _, i := range s.all {
		if i.avoided(now) && (first.IsZero() || i.avoid.Before(first)) {
			first = i.avoid
		}
	}
	return first
}

// Served records that i answered a request: it is no longer avoided.
func (s *Set) Served(i *Instance) { i.backoff, i.avoid = 0, time.Time{} }

// Awake reports whether any instance is awake, with or without a free slot. An avoided one counts only if it was
// busy, or a request gave way to others there.
func (s *Set) Awake(now time.Time) bool { return s.AwakeFor(now, Want{}) }

// AwakeFor is [Set.Awake] among the instances that w allows.
func (s *Set) AwakeFor(now time.Time, w Want) bool {
	return slices.ContainsFunc(s.all, func(i *Instance) bool {
		return i.takes() && w.allows(i) && (!i.avoided(now) || i.refusal == api.CodeBusy || i.refusal == api.CodeMoved)
	})
}

// May reports whether w allows some instance, and whether it allows all. Instances without an address are ignored.
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

// Asleep returns the instances that w allows and that sleep by their report, or by a later refusal, the lightest
// sleep first. Among equals, those that kept half of w's prompt come first, then the one that its session prefers.
// kept is about how many more tokens of the prompt the first one has kept than one of the others.
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

// keptBy returns how many blocks of a prompt sleepers have kept. For each sleep level it has those that kept the
// most, if that is at least half of the prompt.
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

// Sent records that w's prompt goes to i without a pick.
func (s *Set) Sent(i *Instance, w Want, now time.Time) {
	if s.Many() {
		s.learn(i, w.Prefix, now)
	}
}

// Retire stops the present instances from getting requests, whatever they report: their function was redeclared, and
// they are about to end.
func (s *Set) Retire() {
	for _, i := range s.all {
		i.retired = true
	}
}

// All returns the instances, in no order. The slice belongs to the set.
func (s *Set) All() []*Instance { return s.all }

// rank orders states by how soon they accept a request.
var rank = map[api.State]int{api.Awake: 5, api.Starting: 4, api.Draining: 3, api.Asleep: 2, api.Unhealthy: 1}

// Sooner reports whether an instance in state a accepts a request sooner than one in state b.
func Sooner(a, b api.State) bool { return rank[a] > rank[b] }

// Best returns the report of the instance that will accept a request soonest; ok is false if there is none.
func (s *Set) Best() (st api.InstanceStatus, ok bool) {
	for _, i := range s.all {
		if !ok || rank[i.status.State] > rank[st.State] {
			st, ok = i.status, true
		}
	}
	return st, ok
}

// Reports returns all reports, ordered by instance.
func (s *Set) Reports() []api.InstanceStatus {
	out := make([]api.InstanceStatus, 0, len(s.all))
	for _, i := range s.all {
		out = append(out, i.status)
	}
	slices.SortFunc(out, func(a, b api.InstanceStatus) int { return strings.Compare(string(a.Instance), string(b.Instance)) })
	return out
}
