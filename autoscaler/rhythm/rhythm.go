// Package rhythm predicts when a function is needed: a visit at a time ([Rhythm.Next]), and half hours of the day, in
// UTC, in which there usually is one ([Rhythm.Likely]). A visit is a request after a pause, with those before the next
// pause. A time is exact enough to wake an instance for it; an hour only says that it is worth having one asleep.
//
//  1. A visit ([Rhythm.Visit]) decides whether the last prediction was right.
//  2. For each common or suggested period, each visit of the last period is followed back: was there one a period before
//     it, and two periods before it? If so, another is predicted a period after it.
//  3. The window's width is the deviation of the supporting visits from an exact period, plus a margin.
//  4. A row of visits that ended here a day or a week ago is expected to end here again. The earliest other window is next.
//  5. Predictions are acted upon only while the rhythm is trusted ([Rhythm.Trusted]), but judged all the same.
//
// If the clock is set back, a rhythm forgets its visits. A Rhythm is not safe for concurrent use. Its zero value has
// learned nothing.
package rhythm

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

const (
	mostVisits = 64
	// leastSupport is how many earlier visits must support a window.
	leastSupport = 2
	mostSupport  = 7
	// mostChance is the largest probability of meeting a window by chance.
	mostChance = 0.05
	// margin is for the inaccuracy of real periods.
	margin = 250 * time.Millisecond
)

// Rhythm is one function's. Its fields are for an autoscaler's record.
type Rhythm struct {
	// Visits are the beginnings of the last ones, the newest last.
	Visits []int64 // nanoseconds since 1970
	Window Window  `json:"Next"`
	Known  bool
	// Verdicts are the last eight, the newest in the lowest bit; Count counts all.
	Verdicts uint8
	Count    int     `json:"Judged"`
	Outcome  Verdict `json:"Last"`
	hours
}

// Clone returns a copy of r; nil for nil.
func (r *Rhythm) Clone() *Rhythm {
	if r == nil {
		return nil
	}
	c := *r
	c.Visits = slices.Clone(r.Visits)
	return &c
}

// Window is a time at which a visit is predicted.
type Window struct {
	// From and Until are its earliest and latest beginning.
	From, Until time.Time
	// Period is the distance to the previous visit; Times is in a row.
	Period time.Duration
	Times  int
}

// String returns the text used in reasons.
func (w Window) String() string {
	middle := w.From.Add(w.Until.Sub(w.From) / 2)
	return fmt.Sprintf("a request is foreseen at %s ± %s: one came every %s, %d times in a row", middle.UTC().Format("15:04:05 MST"), tidy(w.Until.Sub(w.From)/2), tidy(w.Period), w.Times)
}

func tidy(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// Verdict is the outcome of a window.
type Verdict struct {
	Window Window
	// Came is when the visit came.
	Right bool
	Came  time.Time
}

// Visit learns of a request at now, after the function was idle for idle. pause is the shortest idle time before a
// visit. widest bounds useful windows. judged: this decided the outcome of the previous window.
func (r *Rhythm) Visit(now time.Time, idle, pause, widest time.Duration) (verdict Verdict, judged bool) {
	at := now.UnixNano()
	if n := len(r.Visits); n > 0 && at < r.Visits[n-1] { // the clock was set back
		r.Visits, r.Known, r.Begun = r.Visits[:0], false, false
	}
	verdict, judged = r.judge(now, idle)
	if idle < pause && len(r.Visits) > 0 {
		return verdict, judged
	}
	if len(r.Visits) == mostVisits {
		r.Visits = slices.Delete(r.Visits, 0, mostVisits/4)
	}
	r.Visits = append(r.Visits, at)
	r.visit(now)
	r.Window, r.Known = r.foresee(pause, widest)
	return verdict, judged
}

func (r *Rhythm) judge(now time.Time, idle time.Duration) (v Verdict, judged bool) {
	early := (r.Window.Until.Sub(r.Window.From)) / 2
	switch {
	case !r.Known || now.Before(r.Window.From.Add(-early)):
		return v, false
	case now.Before(r.Window.Until) || now.Equal(r.Window.Until):
		v = Verdict{r.Window, true, now}
	case !now.Add(-idle).Before(r.Window.From): // the function was in use then, which tells nothing
		r.Known = false
		return v, false
	default:
		v = Verdict{r.Window, false, now}
	}
	r.Known, r.Outcome = false, v
	r.Count++
	r.Verdicts <<= 1
	if v.Right {
		r.Verdicts |= 1
	}
	return v, true
}

// Next returns the window in which a visit is predicted, if it is not over at now.
func (r *Rhythm) Next(now time.Time) (w Window, known bool) {
	if r == nil || !r.Known || now.After(r.Window.Until) {
		return Window{}, false
	}
	return r.Window, true
}

// Made returns the last window that has not been judged, over or not.
func (r *Rhythm) Made() (w Window, known bool) {
	if r == nil {
		return Window{}, false
	}
	return r.Window, r.Known
}

// Trusted reports whether to act upon [Rhythm.Next]: three quarters of the last eight windows were right, or the only
// one, from four visits at equal distances.
func (r *Rhythm) Trusted() bool {
	if r == nil {
		return false
	}
	right, of := r.Score()
	if of == 1 {
		return right == 1 && r.Window.Times > leastSupport
	}
	return of > 1 && 4*right >= 3*of
}

// Score returns how many of the last judged windows, at most eight, were right.
func (r *Rhythm) Score() (right, of int) {
	if r == nil {
		return 0, 0
	}
	of = min(r.Count, 8)
	return bits.OnesCount8(r.Verdicts & uint8(1<<of-1)), of
}

// Scored describes [Rhythm.Score].
func (r *Rhythm) Scored() string {
	right, of := r.Score()
	switch {
	case of == 0:
		return "it is the first forecast"
	case of == 1 && right == 1:
		return "the only forecast so far was right"
	case of == 1:
		return "the only forecast so far was wrong"
	}
	return fmt.Sprintf("%d of the last %d forecasts were right", right, of)
}

// Judged returns how many windows have been judged.
func (r *Rhythm) Judged() int {
	if r == nil {
		return 0
	}
	return r.Count
}

// Last returns the outcome of the last judged window.
func (r *Rhythm) Last() Verdict {
	if r == nil {
		return Verdict{}
	}
	return r.Outcome
}

// Likely reports whether there usually is a visit in the half hour of t or the next.
func (r *Rhythm) Likely(t time.Time) bool { return r != nil && r.likely(t) }

// NextLikely returns the next half hour, after t's, in which there usually is a visit.
func (r *Rhythm) NextLikely(t time.Time) (begin time.Time, known bool) {
	if r == nil || !r.Any {
		return time.Time{}, false
	}
	for k := int64(1); k <= slots; k++ {
		if begin := time.Unix((slotOf(t)+k)*slotSeconds, 0).In(t.Location()); r.likely(begin) {
			return begin, true
		}
	}
	return time.Time{}, false
}

// HourAfter returns when the result of [Rhythm.Likely] for t may next change.
func HourAfter(t time.Time) time.Time {
	return time.Unix((slotOf(t)+1)*slotSeconds, 0).In(t.Location())
}

// Hour describes the reason of [Rhythm.Likely].
func (r *Rhythm) Hour(t time.Time) string {
	begin := time.Unix(slotOf(t)*slotSeconds, 0).In(t.Location())
	return fmt.Sprintf("between %s and %s there was a request on most of the last days", begin.UTC().Format("15:04"), begin.UTC().Add(2*slotSeconds*time.Second).Format("15:04 MST"))
}

const (
	// slots is the number of half hours of a day.
	slots       = 48
	slotSeconds = 30 * 60
	// gain is the weight of a new day.
	gain = 0.2
	// usual is the chance from which on a visit is expected in a half hour or the next. Two days with visits in both, or
	// four with one in one of them, are enough, and two days off after a week do not end it.
	usual = 0.5
)

// hours has, for each half hour of the day, the share of recent days with a visit.
type hours struct {
	Often [slots]float32
	// Slot is the last half hour with a visit, counted from 1970.
	Slot  int64
	Begun bool
	Any   bool // some half hour is usual
}

func slotOf(t time.Time) int64 { return t.Unix() / slotSeconds }

func (h *hours) visit(now time.Time) {
	slot := slotOf(now)
	if slot < 0 || h.Begun && slot == h.Slot {
		return
	}
	if h.Begun {
		// After a month nothing learned is left.
		for s := max(h.Slot+1, slot-31*slots); s < slot; s++ {
			h.Often[s%slots] *= 1 - gain
		}
	}
	h.Often[slot%slots] += gain * (1 - h.Often[slot%slots])
	h.Slot, h.Begun = slot, true
	h.count()
}

func (h *hours) count() {
	h.Any = false
	for s := range int64(slots) {
		h.Any = h.Any || h.chance(s) >= usual
	}
}

func (h *hours) likely(t time.Time) bool {
	slot := slotOf(t)
	if !h.Any || slot < 0 {
		return false
	}
	// Days since the last visit count, too.
	keep := float32(1)
	for missed := slot - slots; missed > h.Slot; missed -= slots {
		if keep *= 1 - gain; keep < usual/2 {
			return false
		}
	}
	return 1-(1-keep*h.Often[slot%slots])*(1-keep*h.Often[(slot+1)%slots]) >= usual
}

func (h *hours) chance(slot int64) float32 {
	return 1 - (1-h.Often[slot%slots])*(1-h.Often[(slot+1)%slots])
}

var usualPeriods = []time.Duration{
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
}

func (r *Rhythm) foresee(pause, widest time.Duration) (best Window, known bool) {
	n := len(r.Visits)
	if n <= leastSupport {
		return best, false
	}
	now, oldest := r.Visits[n-1], r.Visits[0]
	for _, period := range r.periods() {
		if period <= pause || int64(period)*leastSupport > now-oldest+int64(widest) {
			continue
		}
		near := min(period/24, widest/2) // the allowed deviation from an exact period
		for k := n - 1; k >= 0 && r.Visits[k]+int64(period) > now+int64(near); k-- {
			w, found := r.follow(k, period, near)
			if !found || w.Until.Sub(w.From) > widest || r.chance(w) > mostChance || r.ended(r.Visits[k], w.Period, near) {
				continue
			}
			if !known || w.From.Before(best.From) && !same(w, best) || same(w, best) && w.Times > best.Times {
				best, known = w, true
			}
		}
	}
	return best, known
}

// same reports whether two windows are about the same visit.
func same(a, b Window) bool { return !a.From.After(b.Until) && !b.From.After(a.Until) }

func (r *Rhythm) periods() []time.Duration {
	n := len(r.Visits)
	gaps := make([]int64, 0, mostSupport)
	for k := n - 1; k > 0 && len(gaps) < mostSupport; k-- {
		gaps = append(gaps, r.Visits[k]-r.Visits[k-1])
	}
	two := time.Duration(r.Visits[n-1] - r.Visits[n-3])
	last := time.Duration(gaps[0])
	slices.Sort(gaps)
	return append([]time.Duration{time.Duration(gaps[len(gaps)/2]), last, two}, usualPeriods...)
}

// follow returns the window one period after the kth visit, if there were others before it.
func (r *Rhythm) follow(k int, period, near time.Duration) (w Window, found bool) {
	var back [mostSupport + 1]int64
	back[0] = r.Visits[k]
	times := 0
	for times < mostSupport {
		at, found := r.visitNear(back[times]-int64(period), int64(near))
		if !found {
			break
		}
		times++
		back[times] = at
	}
	if times < leastSupport {
		return w, false
	}
	exact := (back[0] - back[times]) / int64(times)
	first, last := int64(0), int64(0) // in which each predicts the next, relative to the kth
	for j := range times + 1 {
		at := back[j] + int64(j)*exact - back[0]
		if j == 0 {
			first, last = at, at
		}
		first, last = min(first, at), max(last, at)
	}
	spread := time.Duration(last - first)
	at := time.Unix(0, back[0]+exact)
	return Window{
		From:   at.Add(time.Duration(first) - spread/4 - margin),
		Until:  at.Add(time.Duration(last) + spread/2 + 4*margin),
		Period: time.Duration(exact), Times: times,
	}, true
}

// cycles are the cycles of people's habits: a row of visits ends in the evening, or before a weekend.
var cycles = []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}

// ended reports whether a row of visits ended at this time in the last cycle, and in the one before if that is
// remembered: there was a visit and none a period later.
func (r *Rhythm) ended(at int64, period, near time.Duration) bool {
	for _, cycle := range cycles {
		times := 0
		for n := int64(1); n <= 2 && period < cycle; n++ {
			then := at - n*int64(cycle)
			if _, was := r.visitNear(then, int64(near)); !was {
				break
			}
			if _, on := r.visitNear(then+int64(period), int64(near)); on {
				times = 0
				break
			}
			times++
		}
		if times > 0 {
			return true
		}
	}
	return false
}

func (r *Rhythm) visitNear(at, near int64) (visit int64, found bool) {
	k, _ := slices.BinarySearch(r.Visits, at)
	if k < len(r.Visits) && r.Visits[k]-at <= near {
		visit, found = r.Visits[k], true
	}
	if k > 0 && at-r.Visits[k-1] <= near && (!found || at-r.Visits[k-1] < visit-at) {
		visit, found = r.Visits[k-1], true
	}
	return visit, found
}

// chance returns the probability of a visit in w at the rate of the last visits.
func (r *Rhythm) chance(w Window) float64 {
	n := len(r.Visits)
	span := time.Duration(r.Visits[n-1] - r.Visits[0])
	return float64(n-1) * w.Until.Sub(w.From).Seconds() / max(1, span.Seconds())
}
