// Package route knows the instances of one function and picks the one that takes the next
// request.
//
// It decides by what this activator itself has sent and has not seen finish, never by a
// measurement that may be old: a missing report does not stop the traffic. Reports only say
// whether an instance takes requests, how many at once, and where.
//
// The rule of [Set.Pick], in order:
//
//  1. Only instances that are awake, have a free slot and are not being avoided.
//  2. Of these the ones that have loaded the adapter which the request names, if there are any;
//     else those that load it when a request names it.
//  3. Of these the one with the smallest share of its slots in use.
//  4. Ties rotate, so that the first of several idle instances is not always the same.
//
// An instance that gave a request back is avoided until its next report, or for a short time
// that grows, whichever ends first: its report may be on the way, or lost.
//
// A Set is not safe for concurrent use: one mutex of its owner guards it.
package route

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Avoidance after an instance gave a request back: first and longest.
const (
	avoidFirst = 20 * time.Millisecond
	avoidMost  = 2 * time.Second
)

// keepTombstone is how long a report of an instance that is gone can come late.
const keepTombstone = 10 * time.Second

// Instance is one instance as this activator sees it. ID and its address are
// constant while a request holds a slot; the rest belongs to the [Set].
type Instance struct {
	ID api.InstanceID

	status  api.InstanceStatus
	base    *url.URL
	running int
	slots   int
	avoid   time.Time     // not picked before
	backoff time.Duration // the last avoidance
	refusal string        // the code that it began with
	retired bool          // it takes no further requests, see [Set.Retire]
}

// takes says whether i takes requests, as far as it says itself.
func (i *Instance) takes() bool { return i.status.Ready() && !i.retired }

func (i *Instance) avoided(now time.Time) bool { return !i.avoid.IsZero() && now.Before(i.avoid) }

// Base is the URL of the instance's root. It must not be changed. Call it while holding the owner's mutex.
func (i *Instance) Base() *url.URL { return i.base }

// Status is the last report. Call it while holding the owner's mutex.
func (i *Instance) Status() api.InstanceStatus { return i.status }

// Running is the number of slots in use. Call it while holding the owner's mutex.
func (i *Instance) Running() int { return i.running }

// Set is the instances of one function.
type Set struct {
	slots      int // of an instance that does not say
	all        []*Instance
	turn       int
	tombstones map[api.InstanceID]tombstone
}

// tombstone remembers an instance that is gone.
type tombstone struct {
	seq   uint64
	until time.Time
}

// Slots sets how many requests an instance takes at once where it does not say itself.
func (s *Set) Slots(n int) {
	s.slots = max(n, 1)
	for _, i := range s.all {
		i.slots = s.slotsOf(i.status)
	}
}

func (s *Set) slotsOf(st api.InstanceStatus) int {
	if st.Concurrency > 0 {
		return st.Concurrency
	}
	return max(s.slots, 1)
}

// Observe takes in a report. It returns false for one that is out of date or has no usable endpoint.
func (s *Set) Observe(st api.InstanceStatus, now time.Time) bool {
	at := slices.IndexFunc(s.all, func(i *Instance) bool { return i.ID == st.Instance })
	if st.State == api.Gone {
		s.remove(st, at, now)
		return at >= 0
	}
	if g, found := s.tombstones[st.Instance]; found && st.Seq <= g.seq && now.Before(g.until) {
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
		s.all = append(s.all, &Instance{ID: st.Instance})
		at = len(s.all) - 1
	}
	i := s.all[at]
	i.status, i.base, i.slots = st, base, s.slotsOf(st)
	i.avoid, i.backoff = time.Time{}, 0
	return true
}

// remove removes the instance at index at (-1: it is not known) and remembers it, so that a late report does not bring it back.
func (s *Set) remove(st api.InstanceStatus, at int, now time.Time) {
	g := tombstone{seq: st.Seq, until: now.Add(keepTombstone)}
	if at >= 0 {
		g.seq = max(g.seq, s.all[at].status.Seq)
		s.all = slices.Delete(s.all, at, at+1)
	}
	for id, old := range s.tombstones {
		if !now.Before(old.until) {
			delete(s.tombstones, id)
		}
	}
	if s.tombstones == nil {
		s.tombstones = make(map[api.InstanceID]tombstone)
	}
	s.tombstones[st.Instance] = g
}

// Pick reserves a slot and returns its instance, nil if there is none.
// [Set.Release] gives the slot back. adapter is empty for the model itself.
func (s *Set) Pick(now time.Time, adapter api.ModelName) *Instance {
	var best *Instance
	bestHas := 0
	n := len(s.all)
	for k := range n {
		i := s.all[(s.turn+k)%n]
		if !i.takes() || i.running >= i.slots || i.avoided(now) {
			continue
		}
		has := i.has(adapter)
		if best != nil && has != bestHas {
			if has > bestHas {
				best, bestHas = i, has
			}
			continue
		}
		// i.running/i.slots < best.running/best.slots, without a division
		if best == nil || i.running*best.slots < best.running*i.slots {
			best, bestHas = i, has
		}
	}
	if best == nil {
		return nil
	}
	if n > 1 {
		s.turn = (slices.Index(s.all, best) + 1) % n
	}
	best.running++
	return best
}

// has is 2 where an adapter is loaded, 1 where it is on standby, and else 0.
func (i *Instance) has(adapter api.ModelName) int {
	switch {
	case adapter == "":
		return 0
	case slices.Contains(i.status.Adapters, adapter):
		return 2
	case slices.Contains(i.status.Standby, adapter):
		return 1
	}
	return 0
}

// Reserve reserves a slot of i, which has taken a request already, whatever it reports.
func (s *Set) Reserve(i *Instance) { i.running++ }

// Free is how many slots of instances that take requests are free.
func (s *Set) Free(now time.Time) (n int) {
	for _, i := range s.all {
		if i.takes() && !i.avoided(now) {
			n += max(0, i.slots-i.running)
		}
	}
	return n
}

// Release gives a slot back. i may have left the set meanwhile.
func (s *Set) Release(i *Instance) {
	if i.running <= 0 {
		panic("route: a slot was released twice")
	}
	i.running--
}

// Avoid notes that i gave a request back with code, or could not be reached.
// It returns when i may be picked again.
func (s *Set) Avoid(i *Instance, code string, now time.Time) time.Time {
	i.refusal = code
	if now.Before(i.avoid) { // others that were sent at the same time come back too
		return i.avoid
	}
	i.backoff = min(max(2*i.backoff, avoidFirst), avoidMost)
	i.avoid = now.Add(i.backoff)
	return i.avoid
}

// NextTry is when the first of the avoided instances may be picked again; zero if none is avoided.
func (s *Set) NextTry(now time.Time) time.Time {
	var first time.Time
	for _, i := range s.all {
		if i.avoided(now) && (first.IsZero() || i.avoid.Before(first)) {
			first = i.avoid
		}
	}
	return first
}

// Served notes that i answered a request: what made us avoid it is over.
func (s *Set) Served(i *Instance) { i.backoff, i.avoid = 0, time.Time{} }

// Awake says whether any instance is awake, with or without a free slot. One
// that is avoided counts only if it was busy.
func (s *Set) Awake(now time.Time) bool {
	return slices.ContainsFunc(s.all, func(i *Instance) bool {
		return i.takes() && (!i.avoided(now) || i.refusal == api.CodeBusy)
	})
}

// Asleep returns the instances that sleep by their report, or by a refusal that
// came before it, the lightest sleep first.
func (s *Set) Asleep(now time.Time) []*Instance {
	var out []*Instance
	for _, i := range s.all {
		if !i.retired && (i.status.State == api.Asleep || i.avoided(now) && i.refusal == api.CodeAsleep) {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b *Instance) int { return int(a.status.Level) - int(b.status.Level) })
	return out
}

// Retire has the instances that there are take no further requests, whatever they report: their function is another
// one now, and they are about to end.
func (s *Set) Retire() {
	for _, i := range s.all {
		i.retired = true
	}
}

// All returns the instances, in no order. The slice belongs to the set.
func (s *Set) All() []*Instance { return s.all }

// rank orders states by how soon they take a request.
var rank = map[api.State]int{api.Awake: 5, api.Starting: 4, api.Draining: 3, api.Asleep: 2, api.Unhealthy: 1}

// Sooner says whether an instance in state a takes a request sooner than one in state b.
func Sooner(a, b api.State) bool { return rank[a] > rank[b] }

// Best is the report of the instance that will take a request soonest; ok is false if there is none.
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
