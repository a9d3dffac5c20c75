package route

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Reasons for a choice, in order.
const (
	ByOnly    = "only"
	ByWake    = "wake"
	ByPrefix  = "prefix"  // at least half of the prompt is cached
	BySession = "session" // the session prefers it
	ByPrompt  = "prompt"  // the beginning of an unknown prompt prefers it
	ByAdapter = "adapter" // the least busy one with the adapter
	ByLoad    = "load"    // the least busy one
)

// SameWay is how far two round trips may differ and count as equal.
const SameWay = 20 * time.Millisecond

// Want lists what a request prefers and requires. Zero accepts any instance.
type Want struct {
	Adapter api.ModelName
	// The beginning of the prompt.
	Prefix Chain
	// Session is a conversation or user; 0: none.
	Session uint64
	// Only restricts the instances, by host and port.
	Only func(host string) bool
	// FreeSlot excludes waiting at an instance.
	FreeSlot bool
}

func (w Want) allows(i *Instance) bool { return w.Only == nil || w.Only(i.base.Host) }

const (
	none = -1
	// fresh is how long a report of load counts.
	fresh = 10 * time.Second
	// crowded is the KV usage from which it counts as load.
	crowded = 0.8
	// aboveMean bounds how much busier than the mean a preferred instance may be.
	aboveMean = 1.25
)

// slack returns how many more requests than the least busy instance another may have and be chosen for its cache: a
// quarter of the slots, at least 4 or half of them. With less, many requests leave their conversation.
func slack(slots int) float64 { return float64(max(slots/4, min(slots/2, 4), 1)) }

// The next pick reuses scratch.
type scratch struct {
	free       []candidate
	near, seen places
}

type candidate struct {
	*Instance
	load float64
}

// Many reports whether a [Want] matters.
func (s *Set) Many() bool { return len(s.all) > 1 }

// PickFor reserves a slot of an instance that may accepts, and returns the reason; nil: none. [Set.Release] gives
// it back.
func (s *Set) PickFor(now time.Time, w Want, may func(api.InstanceID) bool) (*Instance, api.Choice) {
	free := s.free(now, w, may)
	if len(free) == 0 {
		return nil, api.Choice{}
	}
	var why api.Choice
	best := free[0].Instance
	if len(s.all) == 1 {
		why.By = ByOnly
	} else {
		best, why = s.choose(free, w)
		s.turn = (slices.Index(s.all, best) + 1) % len(s.all)
		s.learn(best, w.Prefix, now)
	}
	why.Running, why.Slots, why.Free = best.running, best.places(), len(free)
	s.Reserve(best, w.Adapter)
	return best, why
}

// Next returns up to n alternatives to i.
func (s *Set) Next(i *Instance, n int, now time.Time, w Want, may func(api.InstanceID) bool) (next []*Instance) {
	free := slices.DeleteFunc(s.free(now, w, may), func(c candidate) bool { return c.Instance == i })
	for len(next) < n && len(free) > 0 {
		best, _ := s.choose(slices.Clone(free), w)
		next = append(next, best)
		free = slices.DeleteFunc(free, func(c candidate) bool { return c.Instance == best })
	}
	return next
}

// Move moves a slot of i to the instance at host; nil: unknown.
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

// free returns, in rotation, the instances with a free slot, else those at which the request may wait. The slice
// belongs to the scratch.
func (s *Set) free(now time.Time, w Want, may func(api.InstanceID) bool) []candidate {
	free := s.accepting(now, w, may, func(i *Instance) bool { return i.free(now) })
	if len(free) == 0 {
		free = s.accepting(now, w, may, func(i *Instance) bool { return i.queues(now, w) })
	}
	return free
}

func (s *Set) accepting(now time.Time, w Want, may func(api.InstanceID) bool, accepts func(*Instance) bool) []candidate {
	free := s.scratch.free[:0]
	turn := min(s.turn, len(s.all))
	for _, part := range [][]*Instance{s.all[turn:], s.all[:turn]} {
		for _, i := range part {
			if accepts(i) && (may == nil || may(i.ID)) && w.allows(i) {
				free = append(free, candidate{i, i.busy(now)})
			}
		}
	}
	s.scratch.free = free
	return free
}

// free is not empty.
func (s *Set) choose(free []candidate, w Want) (*Instance, api.Choice) {
	most := 0
	if w.Adapter != "" {
		free, most = fit(free, w.Adapter)
	}
	free = s.nearest(free)
	least, limit := spread(free)
	why := api.Choice{By: ByLoad, Prompt: tokens(w.Prefix.Len()), Least: least.running}
	if most > 0 {
		why.By = ByAdapter
	}
	if i, known := s.cached(free, w, limit); i != nil {
		why.By, why.Known = ByPrefix, tokens(known)
		return i, why
	}
	switch {
	case w.Session != 0:
		why.By = BySession
		return preferred(free, w.Session, limit), why
	case w.Prefix.Len() > 0:
		why.By = ByPrompt
		return preferred(free, w.Prefix.Key(s.index.Seen(w.Prefix)), limit), why
	}
	return least.Instance, why
}

// nearest returns the instances with the shortest way, of these the cheapest not much busier.
func (s *Set) nearest(free []candidate) []candidate {
	if !s.apart {
		return free
	}
	way := free[0].status.Way
	for _, c := range free {
		way = min(way, c.status.Way)
	}
	free = slices.DeleteFunc(free, func(c candidate) bool { return c.status.Way > way+SameWay })
	_, limit := spread(free)
	least := math.Inf(1)
	for _, c := range free {
		if limit.allows(c) {
			least = min(least, c.status.Cost)
		}
	}
	return slices.DeleteFunc(free, func(c candidate) bool { return c.status.Cost > least })
}

func tokens(blocks int) api.Tokens { return api.Tokens(bytesOf(blocks) / 4) }

// fit returns the instances fit for an adapter and the best rank: unless all are much busier, those that have it.
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

// 2: loaded or in use, 1: on standby
func (i *Instance) has(adapter api.ModelName) int {
	switch {
	case i.using[adapter] > 0 || slices.Contains(i.status.Adapters, adapter):
		return 2
	case slices.Contains(i.status.Standby, adapter):
		return 1
	}
	return 0
}

// busy returns the share of i's slots in use, or of a crowded KV memory if that is greater.
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

type limit struct{ least, mean float64 }

func (l limit) allows(c candidate) bool {
	return c.load <= l.mean*aboveMean || c.load <= l.least+slack(c.slots)/float64(c.slots)
}

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

// cached returns an allowed instance that has seen the most blocks of a prompt, if half of it. It prefers the
// session's, else the one for the rest of the prompt, else the least busy.
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
	if 2*bytesOf(depth) < bytesOf(c.Len()) {
		return nil, 0
	}
	free = slices.DeleteFunc(free, func(i candidate) bool { return !seen.Has(i.place) })
	switch {
	case w.Session != 0:
		return preferred(free, w.Session, l), depth
	case depth < c.Len(): // others may share just this prefix
		return preferred(free, c.Key(depth), l), depth
	}
	least, _ := spread(free)
	return least.Instance, depth
}

// The least busy candidate is always allowed.
func preferred(free []candidate, key uint64, l limit) *Instance {
	var best *Instance
	most := uint64(0)
	for _, i := range free {
		if !l.allows(i) {
			continue
		}
		if p := prefers(key, i.hash); best == nil || p > most {
			best, most = i.Instance, p
		}
	}
	return best
}

func (s *Set) learn(i *Instance, c Chain, now time.Time) {
	if c.Len() == 0 {
		return
	}
	if i.place == none {
		i.place = s.index.Place()
	}
	s.index.Learn(c, i.place, now)
}

// A new process empties the cache, or a sleep in which nothing was kept.
func lostCache(was, is api.InstanceStatus) bool {
	if was.Restarts != is.Restarts || was.PID != is.PID {
		return true
	}
	switch is.State {
	case api.Awake, api.Draining:
		return was.State == is.State && !was.Since.Equal(is.Since) // it slept in between
	case api.Asleep:
		return !kept(is)
	case api.Starting:
		return was.State != api.Asleep && was.State != api.Starting || is.Stage != api.StepWaking
	}
	return true
}

func kept(st api.InstanceStatus) bool {
	return st.Load != nil && st.Load.CacheKnown && st.Load.Cached > 0
}

// In bytes.
const usualPerToken = 4

// Count records the size and the tokens of a prompt.
func (s *Set) Count(bytes int, tokens api.Tokens) {
	if bytes <= 0 || tokens <= 0 {
		return
	}
	each := min(max(float64(bytes)/float64(tokens), 0.5), 1000) // pictures have few tokens
	s.perToken += (each - cmp.Or(s.perToken, each)) / 16
	s.perToken = cmp.Or(s.perToken, each)
}

// trim removes the oldest prompts of i that no longer fit into its cache, except those after the last report. It
// scans the whole index, so it waits for an eighth too much.
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

// The report is older than our count: only requests beyond our peak since the last one are others'.
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

// Release gives back a slot reserved with adapter. i may have left the set.
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
