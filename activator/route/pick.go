package route

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/route/prefix"
	"github.com/rouse-dev/rouse/api"
)

// Want is what a request wants of an instance. The zero value wants nothing.
type Want struct {
	// Adapter is the one that it should have loaded; empty: none.
	Adapter api.ModelName
	// Prefix is what its prompt begins with.
	Prefix prefix.Chain
	// Session is a number for the conversation or user, with which it should stay; 0: it has none.
	Session uint64
	// Only says whether an instance may be chosen, by the host and port of its address; nil: each may.
	Only func(host string) bool
}

// allows says whether the request may go to i.
func (w Want) allows(i *Instance) bool { return w.Only == nil || w.Only(i.base.Host) }

const (
	none = -1
	// fresh is how long what a runtime says of its work counts: it says so when it changes.
	fresh = 10 * time.Second
	// crowded is the share of the KV memory in use from which on it counts as load.
	crowded = 0.8
	// aboveMean is how much busier than all in the mean an instance may be.
	aboveMean = 1.25
)

// slack is how many more requests than the least busy one an instance may have to be chosen for what it has in its
// cache, at so many slots: a quarter of them, but of up to 16 slots 4 or half of them. It may also be a quarter busier than all are in the mean.
// Less sends every fifth request of a conversation elsewhere at 8 slots, a quarter of which are in use.
func slack(slots int) float64 { return float64(max(slots/4, min(slots/2, 4), 1)) }

// scratch is memory of one pick, for the next one.
type scratch struct {
	free       []candidate
	near, seen prefix.Places
}

// candidate is an instance with a free slot, and its load.
type candidate struct {
	*Instance
	load float64
}

// Many says whether there is a choice of instances: whether a [Want] counts.
func (s *Set) Many() bool { return len(s.all) > 1 }

// Pick reserves a slot and returns its instance, nil if there is none.
// [Set.Release] gives the slot back. adapter is empty for the model itself.
func (s *Set) Pick(now time.Time, adapter api.ModelName) *Instance {
	i, _ := s.PickFor(now, Want{Adapter: adapter}, nil)
	return i
}

// PickFor is [Set.Pick] of those instances that may take the request, nil: all may; and says why it is that one.
func (s *Set) PickFor(now time.Time, w Want, may func(api.InstanceID) bool) (*Instance, api.Choice) {
	free := s.free(now, w, may)
	if len(free) == 0 {
		return nil, api.Choice{}
	}
	var why api.Choice
	best := free[0].Instance
	if len(s.all) == 1 {
		why.By = api.ByOnly
	} else {
		best, why = s.choose(free, w)
		s.turn = (slices.Index(s.all, best) + 1) % len(s.all)
		s.learn(best, w.Prefix, now)
	}
	why.Running, why.Slots, why.Free = best.running, best.slots, len(free)
	s.Reserve(best, w.Adapter)
	return best, why
}

// Next are up to n instances that would take the request if i did not, the best first.
func (s *Set) Next(i *Instance, n int, now time.Time, w Want, may func(api.InstanceID) bool) (next []*Instance) {
	free := slices.DeleteFunc(s.free(now, w, may), func(c candidate) bool { return c.Instance == i })
	for len(next) < n && len(free) > 0 {
		best, _ := s.choose(slices.Clone(free), w)
		next = append(next, best)
		free = slices.DeleteFunc(free, func(c candidate) bool { return c.Instance == best })
	}
	return next
}

// Move takes in that the instance at host has served what has a slot of i. The slot is that instance's then; nil: there is none.
func (s *Set) Move(i *Instance, host string, now time.Time, w Want) *Instance {
	at := slices.IndexFunc(s.all, func(o *Instance) bool { return o.base.Host == host })
	if at < 0 {
		return nil
	}
	s.Release(i, w.Adapter)
	s.index.Unlearn(w.Prefix, i.place)
	s.Avoid(i, api.CodeUnhealthy, now)
	s.Reserve(s.all[at], w.Adapter)
	s.learn(s.all[at], w.Prefix, now)
	return s.all[at]
}

// free are the instances that take a request now, in turn. They belong to the scratch.
func (s *Set) free(now time.Time, w Want, may func(api.InstanceID) bool) []candidate {
	free := s.scratch.free[:0]
	turn := min(s.turn, len(s.all)) // some may have gone
	for _, part := range [][]*Instance{s.all[turn:], s.all[:turn]} {
		for _, i := range part {
			if i.free(now) && (may == nil || may(i.ID)) && w.allows(i) {
				free = append(free, candidate{i, i.busy(now)})
			}
		}
	}
	s.scratch.free = free
	return free
}

// choose picks one of at least one.
func (s *Set) choose(free []candidate, w Want) (*Instance, api.Choice) {
	most := 0
	if w.Adapter != "" {
		free, most = fit(free, w.Adapter)
	}
	free = s.nearest(free)
	least, limit := spread(free)
	why := api.Choice{By: api.ByLoad, Prompt: tokens(w.Prefix.Len()), Least: least.running}
	if most > 0 {
		why.By = api.ByAdapter
	}
	if i, known := s.cached(free, w, limit); i != nil {
		why.By, why.Known = api.ByPrefix, tokens(known)
		return i, why
	}
	switch {
	case w.Session != 0:
		why.By = api.BySession
		return preferred(free, w.Session, limit), why
	case w.Prefix.Len() > 0:
		why.By = api.ByPrompt
		return preferred(free, w.Prefix.Key(s.index.Seen(w.Prefix)), limit), why
	}
	return least.Instance, why
}

// nearest are those to which the way is as short as to any, and of these the cheapest that are not much busier. Instances of one
// place are all as close, and cost the same.
func (s *Set) nearest(free []candidate) []candidate {
	if !s.apart {
		return free
	}
	way := free[0].status.Way
	for _, c := range free {
		way = min(way, c.status.Way)
	}
	free = slices.DeleteFunc(free, func(c candidate) bool { return c.status.Way > way+api.SameWay })
	_, limit := spread(free)
	least := math.Inf(1)
	for _, c := range free {
		if limit.allows(c) {
			least = min(least, c.status.Cost)
		}
	}
	return slices.DeleteFunc(free, func(c candidate) bool { return c.status.Cost > least })
}

// tokens is about how many tokens so many blocks of a prompt have.
func tokens(blocks int) api.Tokens { return api.Tokens(prefix.Bytes(blocks) / 4) }

// fit are those that are fit for an adapter, and how well the best of them are. Those that have it go before those that
// would load it, unless they are all much busier.
func fit(free []candidate, adapter api.ModelName) ([]candidate, int) {
	most := 0
	for _, i := range free {
		most = max(most, i.has(adapter))
	}
	if most == 0 {
		return free, 0
	}
	free = slices.DeleteFunc(free, func(i candidate) bool { return i.has(adapter) == 0 })
	_, limit := spread(free)
	if !slices.ContainsFunc(free, func(i candidate) bool { return i.has(adapter) == most && limit.allows(i) }) {
		return free, most
	}
	return slices.DeleteFunc(free, func(i candidate) bool { return i.has(adapter) < most }), most
}

// has is 2 where an adapter is loaded or a request for it runs, 1 where it is on standby, and else 0.
func (i *Instance) has(adapter api.ModelName) int {
	switch {
	case i.using[adapter] > 0 || slices.Contains(i.status.Adapters, adapter):
		return 2
	case slices.Contains(i.status.Standby, adapter):
		return 1
	}
	return 0
}

// busy is the share of i's slots that is in use, as far as is known: by our requests, those of others that
// its runtime reports, and of its KV memory where little of it is left.
func (i *Instance) busy(now time.Time) float64 {
	if i.work == nil || now.Sub(i.reported) > fresh {
		return float64(i.running) / float64(i.slots)
	}
	load := float64(i.running+i.others) / float64(i.slots)
	if usage := i.work.KVUsage; usage >= crowded {
		load = max(load, usage)
	}
	return load
}

// limit is the load up to which an instance may be chosen for something other than its load.
type limit struct{ least, mean float64 }

func (l limit) allows(c candidate) bool {
	return c.load <= l.mean*aboveMean || c.load <= l.least+slack(c.slots)/float64(c.slots)
}

// spread is the one with the smallest load, the first of several, and the limit.
func spread(free []candidate) (candidate, limit) {
	least, sum := free[0], 0.0
	for _, c := range free {
		sum += c.load
		if c.load < least.load {
			least = c
		}
	}
	return least, limit{least.load, sum / float64(len(free))}
}

// cached is one of those that have seen most of a prompt, and how much that is; nil: none that may be chosen has seen half of it.
// Of several it is the one that the session prefers, or where there is none the rest of the prompt; of those that have seen all of it the least busy.
func (s *Set) cached(free []candidate, w Want, l limit) (*Instance, int) {
	c := w.Prefix
	if c.Len() == 0 {
		return nil, 0
	}
	near := &s.scratch.near
	clear(*near)
	for _, i := range free {
		if i.place != none && l.allows(i) {
			near.Add(i.place)
		}
	}
	depth, seen := s.index.Find(c, *near, s.scratch.seen)
	s.scratch.seen = seen
	if 2*prefix.Bytes(depth) < prefix.Bytes(c.Len()) {
		return nil, 0
	}
	free = slices.DeleteFunc(free, func(i candidate) bool { return !seen.Has(i.place) })
	switch {
	case w.Session != 0:
		return preferred(free, w.Session, l), depth
	case depth < c.Len(): // what it begins with may be all that it has in common with others
		return preferred(free, c.Key(depth), l), depth
	}
	least, _ := spread(free)
	return least.Instance, depth
}

// preferred is the one that a key prefers of those that may be chosen: the least busy one always may.
func preferred(free []candidate, key uint64, l limit) *Instance {
	var best *Instance
	most := uint64(0)
	for _, i := range free {
		if !l.allows(i) {
			continue
		}
		if p := prefix.Prefers(key, i.hash); best == nil || p > most {
			best, most = i.Instance, p
		}
	}
	return best
}

// learn notes that a prompt goes to i.
func (s *Set) learn(i *Instance, c prefix.Chain, now time.Time) {
	if c.Len() == 0 {
		return
	}
	if i.place == none {
		i.place = s.index.Place()
	}
	s.index.Learn(c, i.place, now)
}

// lostCache says whether an instance that was in one state, and is now in another, has lost what was in its cache:
// a new process drops it, and so does a sleep of which it does not say that it has kept some.
func lostCache(was, is api.InstanceStatus) bool {
	if was.Restarts != is.Restarts || was.PID != is.PID {
		return true
	}
	switch is.State {
	case api.Awake, api.Draining:
		return was.State == is.State && !was.Since.Equal(is.Since) // it has slept, and we have not been told
	case api.Asleep:
		return !kept(is)
	case api.Starting: // out of a sleep that is known
		return was.State != api.Asleep && was.State != api.Starting || is.Stage != api.StageWaking
	}
	return true
}

// kept says whether a sleeper has kept something of its cache.
func kept(st api.InstanceStatus) bool {
	return st.Load != nil && st.Load.CacheKnown && st.Load.Cached > 0
}

// usualPerToken is how many bytes of a prompt make a token where none has been counted.
const usualPerToken = 4

// Count takes in that a prompt of so many bytes has had so many tokens.
func (s *Set) Count(bytes int, tokens api.Tokens) {
	if bytes <= 0 || tokens <= 0 {
		return
	}
	each := min(max(float64(bytes)/float64(tokens), 0.5), 1000) // pictures have few tokens
	s.perToken += (each - cmp.Or(s.perToken, each)) / 16
	s.perToken = cmp.Or(s.perToken, each)
}

// trim forgets of what i was sent what can't be in its cache any more, by what its last report says that this has: what was used longest
// ago. What was sent since the report before may not be in it yet. It looks at the whole index, so it waits until there is an eighth too much.
func (s *Set) trim(i *Instance, now time.Time) {
	l := i.status.Load
	if l == nil || !l.CacheKnown || i.place == none {
		return
	}
	most := int(float64(l.Cached) * cmp.Or(s.perToken, usualPerToken))
	if s.index.Size(i.place) > most+most/8 {
		s.index.Trim(i.place, most, now.Add(-fresh))
	}
}

// correct takes in what the last report says of i's work. It is about some moments ago, when i may have had
// more requests of ours than now: only those that never can have been ours are others'.
func (i *Instance) correct(now time.Time) {
	i.others, i.reported = 0, now
	if l := i.status.Load; l != nil {
		i.others = max(0, l.Running+l.Waiting-i.peak)
	}
	i.peak = i.running
}

// Reserve reserves a slot of i, whatever it reports.
func (s *Set) Reserve(i *Instance, adapter api.ModelName) {
	i.running++
	i.peak = max(i.peak, i.running)
	if adapter == "" {
		return
	}
	if i.using == nil {
		i.using = make(map[api.ModelName]int)
	}
	i.using[adapter]++
}

// Release gives a slot back, with the adapter for which it was reserved. i may have left the set meanwhile.
func (s *Set) Release(i *Instance, adapter api.ModelName) {
	if i.running <= 0 {
		panic("route: a slot was released twice")
	}
	i.running--
	if adapter == "" {
		return
	}
	if i.using[adapter]--; i.using[adapter] == 0 {
		delete(i.using, adapter)
	}
}
