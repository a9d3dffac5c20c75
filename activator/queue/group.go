package queue

import (
	"cmp"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

// Group is a model with variants: functions that are ways to run it. A request that waits at one variant moves to
// another as soon as that one has a free slot.
type Group struct {
	Name     api.FunctionName
	Variants []*Function
}

// SetGroup sets the model that f is a variant of; nil: none.
func (f *Function) SetGroup(g *Group) { f.group.Store(g) }

// ErrElsewhere refuses a waiting request that another variant of its model serves.
var ErrElsewhere = api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "another variant of the model has a free slot")

// The ranks of variants. Which one a request goes to now, in this order:
const (
	hasSlot    = iota // it is awake and has a free slot
	isAwake           // it is awake
	isWoken           // it is being woken
	isGranted         // it sleeps and may be woken without asking
	isExpected        // requests wait for it, or it starts
	isAny             // the autoscaler decides which one to start
	isRefused         // it refuses requests
)

// Best returns the variant that can serve a request best now. Among equals it is the cheapest, then the first by name.
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

// rank returns f's rank among a model's variants.
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

// gather moves requests that wait at other variants of f's model to f, as many as it has free slots.
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

// sendAway makes up to most requests that wait for f, but named the group, look for another variant, in order of
// their priority and then of their wait, the longest first.
func (f *Function) sendAway(group api.FunctionName, most int) (sent int) {
	for sent < most {
		f.mu.Lock()
		e := f.queue.LeaveFirst(group)
		f.Metrics.Held(f.queue.Len(), f.queue.Bytes())
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
