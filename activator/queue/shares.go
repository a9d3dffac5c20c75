package queue

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A function's slots are shared between the clients that run or wait. With S slots and C clients, a share is S/C slots,
// rounded up. A request of several sequences counts as so many slots, and as no more than there are.
//
//  1. Within a priority, a client that has its share gets no further slot while one below its share waits.
//  2. While requests wait, one whose client leaves written data unread for unreadFor ends.
//  3. A client that is above its share for aboveFor, while one below its share waits, pauses streams: they wait for
//     their turn, and continue where they were.
//  4. For restrains after 2 or 3, a client leaves one slot free: the next request of another has not to wait.
const (
	shareEvery = 250 * time.Millisecond
	unreadFor  = 5 * time.Second
	aboveFor   = 10 * time.Second
	restrains  = time.Minute
	// mostRestrained bounds the clients that are remembered.
	mostRestrained = 1024
)

// shares are the clients that have to give way.
type shares struct {
	timer      *time.Timer
	armed      bool
	above      map[string]time.Time // since when a client was above its share at each look
	restrained map[string]time.Time // until when it leaves a slot free
}

// share returns the number of slots in a share. The caller holds mu.
func (f *Function) share(now time.Time) int {
	clients := max(len(f.queue.clients), 1)
	return (max(f.set.Capacity(now), f.slots) + clients - 1) / clients
}

// below reports whether a client has less than a share.
func (q *waitQueue) below(name string, share int) bool {
	c := q.clients[name]
	return c == nil || c.running < share
}

// firstShared is [waitQueue.First] among the entries for which may returns true, where in each priority those of clients
// below their share come first.
func (q *waitQueue) firstShared(share int, may func(*entry) bool) *entry {
	return q.earliest(func(b *band) *entry {
		below := func(e *entry) bool { return q.below(e.Client, share) && may(e) }
		if e := b.first(); e == nil || below(e) {
			return e
		}
		return cmp.Or(b.firstOf(below, q.picky > 0), b.firstOf(may, q.picky > 0))
	})
}

// leavesFree reports whether a free slot is to stay free for others than a client. The caller holds mu.
func (f *Function) leavesFree(client string, now time.Time) bool {
	return now.Before(f.shares.restrained[client]) && f.set.Free(now) <= 1 && f.slots > 0
}

// restrain lets a client leave a slot free for a while. The caller holds mu.
func (f *Function) restrain(client string, now time.Time) {
	if len(f.shares.restrained) >= mostRestrained {
		clear(f.shares.restrained)
	}
	f.shares.restrained[client] = now.Add(restrains)
}

// watchShares begins to look at the running requests: one waits. The caller holds mu.
func (f *Function) watchShares() {
	if !f.shares.armed {
		f.shares.armed = true
		f.shares.timer.Reset(shareEvery)
	}
}

// checkShares runs on the timer.
func (f *Function) checkShares() {
	f.mu.Lock()
	now := time.Now()
	f.shares.armed = false
	maps.DeleteFunc(f.shares.restrained, func(_ string, until time.Time) bool { return !now.Before(until) })
	above := f.shares.above
	f.shares.above = nil
	if f.queue.Len() > 0 {
		f.watchShares()
		f.endUnread(now)
		f.pauseAbove(above, now)
	}
	f.mu.Unlock()
	f.dispatch() // a restrained client may go on
}

// endUnread ends the requests whose clients do not read. The caller holds mu.
func (f *Function) endUnread(now time.Time) {
	for w := range f.wants {
		if w.slot != nil && w.EndUnread != nil && w.EndUnread(unreadFor) {
			f.restrain(w.Client, now)
		}
	}
}

// pauseAbove pauses streams of clients above their share, the longest-running first, one for each request that waits
// below its client's share. since has the clients that were above it at the last look. The caller holds mu.
func (f *Function) pauseAbove(since map[string]time.Time, now time.Time) {
	share, wanted := f.share(now), 0
	for _, c := range f.queue.clients {
		wanted += max(min(c.count, share-c.running), 0)
	}
	if wanted == 0 {
		return
	}
	above, paused := make(map[string]time.Time), make(map[string]int)
	var running []*Want
	for w := range f.wants {
		if w.slot == nil || f.queue.below(w.Client, share+1) {
			continue
		}
		if asked := w.slot.paused; !asked.IsZero() && now.Sub(asked) < aboveFor { // it comes to its next event soon
			wanted--
			paused[w.Client] += w.slot.terms.sequences
		} else {
			running = append(running, w)
		}
		first, found := since[w.Client]
		if !found {
			first = now
		}
		if now.Before(f.shares.restrained[w.Client]) {
			first = now.Add(-aboveFor)
		}
		above[w.Client] = first
	}
	f.shares.above = above
	slices.SortFunc(running, func(a, b *Want) int { return a.slot.taken.Compare(b.slot.taken) })
	for _, w := range running {
		excess := f.queue.clients[w.Client].running - share - paused[w.Client]
		if wanted <= 0 || excess <= 0 || now.Sub(above[w.Client]) < aboveFor || w.Pause == nil || !w.Pause() {
			continue
		}
		wanted--
		paused[w.Client] += w.slot.terms.sequences
		w.slot.paused = now
		f.restrain(w.Client, now)
	}
}

// Pause gives back the slot of a stream that continues in its turn. It may wait for longer than a new request.
func (s *Slot) Pause() {
	s.want.Renew()
	s.want.pauses = true
	s.GiveBack("")
}

// mostPaused is how long a paused stream may wait.
const mostPaused = time.Hour

// use counts a client's running requests.
func (q *waitQueue) use(name string, n int) {
	c := q.of(name)
	c.running += n
	q.forget(name, c)
}

// of returns the state of a client.
func (q *waitQueue) of(name string) *client {
	c := q.clients[name]
	if c == nil {
		if q.clients == nil {
			q.clients = make(map[string]*client)
		}
		c = &client{}
		q.clients[name] = c
	}
	return c
}

// forget removes a client without requests.
func (q *waitQueue) forget(name string, c *client) {
	if c.count == 0 && c.running == 0 {
		delete(q.clients, name)
	}
}
