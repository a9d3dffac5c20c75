package queue

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/fair"
)

// Clients that run or wait share a function's slots: each of C clients has S/C of S slots, rounded up. A request
// counts as its sequences.
//
//  1. Within a priority, a client with its share gets no slot while one below its share waits.
//  2. While requests wait, one whose client leaves data unread ends ([Want.EndUnread]).
//  3. Once one below its client's share has waited for [fair.GivesWayAfter], a client above its share pauses a
//     stream.
//  4. For the time restrains after 2 or 3, a client leaves one slot free for others.
const (
	shareEvery     = 250 * time.Millisecond
	restrains      = time.Minute
	mostRestrained = 1024
)

// The caller holds mu.
func (f *Function) share(now time.Time) int {
	return f.queue.shares.Share(max(f.set.Capacity(now), f.slots))
}

// firstShared is First among entries that may accepts, those of clients below their share first. If no entry is
// picky, may must return the same for all entries of a client.
func (q *waitQueue) firstShared(share int, may func(*entry) bool) *entry {
	return entryOf(q.order.FirstOf(
		func(i *fair.Item) bool { return may(entryOf(i)) },
		func(i *fair.Item) bool { return q.shares.Slots(entryOf(i).Client) < share }, q.picky > 0))
}

// The caller holds mu.
func (f *Function) leavesFree(client string, now time.Time) bool {
	return now.Before(f.restrained[client]) && f.set.Free(now) <= 1 && f.slots > 0
}

// By client: until when it leaves a slot free.
type restraints map[string]time.Time

func (r restraints) add(client string, now time.Time) {
	if len(r) >= mostRestrained {
		clear(r)
	}
	r[client] = now.Add(restrains)
}

// checkShares applies 2 and 3. The caller holds mu.
func (f *Function) checkShares(now time.Time) {
	maps.DeleteFunc(f.restrained, func(_ string, until time.Time) bool { return !now.Before(until) })
	if f.queue.Len() == 0 {
		return
	}
	f.retry.arm(now.Add(shareEvery), now)
	var running []*Want
	for w := range f.wants {
		switch {
		case w.slot == nil:
		case w.EndUnread != nil && w.EndUnread():
			f.restrained.add(w.Client, now)
		case w.Pause != nil:
			running = append(running, w)
		}
	}
	f.pauseAbove(running, now)
}

// pauseAbove pauses the longest-running streams of clients above their share, one for each waiting request of no
// lower priority below its client's. The caller holds mu.
func (f *Function) pauseAbove(running []*Want, now time.Time) {
	share := f.share(now)
	wanted := func(w *Want, than int) bool {
		for at := f.queue.all.Front(); at != nil && than >= 0; at = at.Next() {
			e := entryAt(at)
			waited := now.Sub(e.arrived) >= fair.GivesWayAfter(time.Duration(w.begins.Load())) || !f.restrained[w.Client].IsZero()
			if waited && e.Priority >= w.Priority && f.queue.shares.Slots(e.Client) < share {
				than--
			}
		}
		return than < 0
	}
	asked, paused := 0, map[string]int{} // in slots
	slices.SortFunc(running, func(a, b *Want) int {
		return cmp.Or(b.slot.asked.Compare(a.slot.asked), a.slot.taken.Compare(b.slot.taken))
	})
	for _, w := range running {
		s := w.slot
		if now.Sub(s.asked) >= fair.MostGivesWay { // else it comes to its next event soon
			if f.queue.shares.Slots(w.Client)-paused[w.Client] <= share || !wanted(w, asked) || !w.Pause() {
				continue
			}
			s.asked = now
			f.restrained.add(w.Client, now)
		}
		asked++
		paused[w.Client] += s.terms.sequences
	}
}

// Pause is [Slot.Yield] of a stream that continues in its turn, within mostPaused.
func (s *Slot) Pause(u Used) {
	s.want.Renew()
	s.want.pauses = true
	s.Yield("", u)
}

const mostPaused = time.Hour

// Group is a model with variants. A request that waits at one moves to another with a free slot.
type Group struct {
	Name     api.FunctionName
	Variants []*Function
}

// SetGroup sets the model that f is a variant of; nil: none.
func (f *Function) SetGroup(g *Group) { f.group.Store(g) }

// ErrElsewhere refuses a waiting request that another variant of its model serves.
var ErrElsewhere = api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "another variant of the model has a free slot")

// The ranks of variants, the best first.
const (
	hasSlot = iota
	isAwake
	isWoken
	isGranted  // asleep, and may be woken at once
	isExpected // requests wait for it, or it starts
	isAny      // the autoscaler decides
	isRefused
)

// Best returns the best variant for a request now: by rank, price, name.
func Best(variants []*Function) *Function {
	var best *Function
	var rank int
	now := time.Now()
	for _, f := range variants {
		r := f.rank(now)
		if best == nil || cmp.Or(cmp.Compare(r, rank), cmp.Compare(f.Spec().Price(), best.Spec().Price()), cmp.Compare(f.Name, best.Name)) < 0 {
			best, rank = f, r
		}
	}
	return best
}

func (f *Function) rank(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.refusal(now) != nil:
		return isRefused
	case f.queue.Len() == 0 && f.set.Free(now) > 0:
		return hasSlot
	case f.set.Awake(now):
		return isAwake
	case f.waking.instance != "":
		return isWoken
	}
	sleepers, _ := f.set.Asleep(now, route.Want{})
	for _, i := range sleepers {
		if f.q.grants.granted(i.ID) {
			return isGranted
		}
	}
	if best, found := f.set.Best(); f.queue.Len() > 0 || found && best.State == api.Starting {
		return isExpected
	}
	return isAny
}

// gather moves requests that wait at f's other variants to f.
func (f *Function) gather() {
	g := f.group.Load()
	if g == nil {
		return
	}
	f.mu.Lock()
	free := 0
	if f.declared && f.queue.Len() == 0 {
		free = f.set.Free(time.Now())
	}
	f.mu.Unlock()
	for _, other := range g.Variants {
		if free <= 0 {
			return
		}
		if other != f {
			free -= other.sendAway(g.Name, free)
		}
	}
}

// sendAway makes up to most requests that named the group look for another variant.
func (f *Function) sendAway(group api.FunctionName, most int) (sent int) {
	for sent < most {
		f.mu.Lock()
		e := f.queue.LeaveFirst(group)
		f.measureQueue()
		f.mu.Unlock()
		if e == nil {
			break
		}
		if e.Offer(&Slot{refused: ErrElsewhere}) {
			sent++
		}
	}
	if sent > 0 {
		f.meter.changed()
	}
	return sent
}
