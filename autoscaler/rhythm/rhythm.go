// Package rhythm learns when a function is wanted, from the times at which it was. It foresees two kinds of things:
//
//   - a visit at a time ([Rhythm.Next]): visits that came at equal distances, such as jobs, go on doing so
//   - hours in which there usually is one ([Rhythm.Likely]): half hours of the day, in UTC
//
// A visit is a request that comes after a pause: what comes within a pause of it belongs to it. The two are of different use. A time
// is exact enough to wake an instance for; an hour is not, and only says that it is worth having one asleep.
//
// It refuses to guess: random arrivals have no rhythm, and what is foreseen by chance is soon found to be wrong. It decides
// nothing and reads no clock.
//
//  1. A visit begins ([Rhythm.Visit]). What was foreseen is judged by it: right if it came within the window, wrong if it came after it.
//  2. For each period that people and the last visits suggest, each visit of the last period is followed back: was there
//     one a period before it, and two periods before it? If so, another is foreseen a period after it.
//  3. The window around it is as wide as those that support it are apart from an exact period, and something more.
//  4. A row of visits that ended here a day or a week ago, in the evening or before a weekend, is expected to end here again. The earliest of the other windows is the
//     next one.
//  5. It is acted upon only while the rhythm is trusted ([Rhythm.Trusted]): three quarters of its last eight windows were right, and
//     there was one at least, of four visits at equal distances. Windows go on being made and judged while it is not, so that it
//     may be trusted again.
//
// A clock that is put back makes a rhythm forget its visits; one that is put forward breaks the row of equal distances, and nothing is
// foreseen until there is a new one.
//
// A Rhythm belongs to one goroutine. Its zero value has learned nothing.
package rhythm

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

const (
	// mostVisits bounds what is remembered.
	mostVisits = 64
	// leastSupport is how many earlier visits must speak for a window, beside the one that it is a period after.
	leastSupport = 2
	// mostSupport is how many are asked.
	mostSupport = 7
	// mostChance is how likely a window may be met by chance, at the rate of the last visits: a wider one says nothing.
	mostChance = 0.05
	// margin is added to windows, for what the world adds to a period.
	margin = 250 * time.Millisecond
)

// Rhythm is what was learned of one function.
type Rhythm struct {
	// visits are when the last ones began, the newest last.
	visits []int64 // nanoseconds since 1970
	next   Window
	known  bool
	// verdicts are those on the last eight windows, the newest in the lowest bit; judged counts all.
	verdicts uint8
	judged   int
	last     Verdict
	hours    hours
}

// State is all that a rhythm has learned, for who keeps it somewhere.
type State struct {
	Visits     []int64
	Next       Window
	Known      bool
	Verdicts   uint8
	Judged     int
	Last       Verdict
	Often      [slots]float32
	Slot       int64
	Begun, Any bool
}

// State is what r has learned; nil: nothing.
func (r *Rhythm) State() *State {
	if r == nil {
		return nil
	}
	return &State{Visits: slices.Clone(r.visits), Next: r.next, Known: r.known, Verdicts: r.verdicts, Judged: r.judged, Last: r.last,
		Often: r.hours.often, Slot: r.hours.slot, Begun: r.hours.begun, Any: r.hours.any}
}

// Rhythm is one that has learned s; nil: none.
func (s *State) Rhythm() *Rhythm {
	if s == nil {
		return nil
	}
	return &Rhythm{visits: slices.Clone(s.Visits), next: s.Next, known: s.Known, verdicts: s.Verdicts, judged: s.Judged, last: s.Last,
		hours: hours{often: s.Often, slot: s.Slot, begun: s.Begun, any: s.Any}}
}

// GobEncode writes the State, for the record of an autoscaler.
func (r *Rhythm) GobEncode() ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(r.State())
	return b.Bytes(), err
}

// GobDecode reads what GobEncode wrote.
func (r *Rhythm) GobDecode(data []byte) error {
	var s State
	err := gob.NewDecoder(bytes.NewReader(data)).Decode(&s)
	*r = *s.Rhythm()
	return err
}

// Window is a time at which a visit is foreseen.
type Window struct {
	// From and Until are when it begins, at the earliest and at the latest.
	From, Until time.Time
	// Period is the distance to the visit before, and Times how often it was kept in a row.
	Period time.Duration
	Times  int
}

// String is a part of reasons.
func (w Window) String() string {
	middle := w.From.Add(w.Until.Sub(w.From) / 2)
	return fmt.Sprintf("a request is foreseen at %s ± %s: one came every %s, %d times in a row", middle.UTC().Format("15:04:05 MST"), tidy(w.Until.Sub(w.From)/2), tidy(w.Period), w.Times)
}

// tidy rounds to what people want to know.
func tidy(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// Verdict is what came of a window.
type Verdict struct {
	Window Window
	// Right says that the visit came within the window, Came when it did.
	Right bool
	Came  time.Time
}

// Visit learns that a request came at now, after the function had nothing to do for idle. pause is how long that must be for a visit to
// begin. widest bounds the width of the windows that are worth anything. judged says that the window before it is over by now, and
// verdict what came of it.
func (r *Rhythm) Visit(now time.Time, idle, pause, widest time.Duration) (verdict Verdict, judged bool) {
	at := now.UnixNano()
	if n := len(r.visits); n > 0 && at < r.visits[n-1] { // the clock was put back
		r.visits, r.known = r.visits[:0], false
		r.hours.forget()
	}
	verdict, judged = r.judge(now, idle)
	if idle < pause && len(r.visits) > 0 {
		return verdict, judged
	}
	if len(r.visits) == mostVisits {
		r.visits = slices.Delete(r.visits, 0, mostVisits/4)
	}
	r.visits = append(r.visits, at)
	r.hours.visit(now)
	r.next, r.known = r.foresee(pause, widest)
	return verdict, judged
}

// judge says what came of the window, where it is over or a request came within it.
func (r *Rhythm) judge(now time.Time, idle time.Duration) (v Verdict, judged bool) {
	early := (r.next.Until.Sub(r.next.From)) / 2
	switch {
	case !r.known || now.Before(r.next.From.Add(-early)):
		return v, false
	case now.Before(r.next.Until) || now.Equal(r.next.Until):
		v = Verdict{r.next, true, now}
	case !now.Add(-idle).Before(r.next.From): // it was in use then, which says nothing
		r.known = false
		return v, false
	default:
		v = Verdict{r.next, false, now}
	}
	r.known, r.last = false, v
	r.judged++
	r.verdicts <<= 1
	if v.Right {
		r.verdicts |= 1
	}
	return v, true
}

// Next is the window that a visit is foreseen in, if one is that is not over at now.
func (r *Rhythm) Next(now time.Time) (w Window, known bool) {
	if r == nil || !r.known || now.After(r.next.Until) {
		return Window{}, false
	}
	return r.next, true
}

// Made is the last window, over or not, that has not been judged.
func (r *Rhythm) Made() (w Window, known bool) {
	if r == nil {
		return Window{}, false
	}
	return r.next, r.known
}

// Trusted says whether what [Rhythm.Next] says is worth acting upon.
func (r *Rhythm) Trusted() bool {
	if r == nil {
		return false
	}
	right, of := r.Score()
	if of == 1 {
		return right == 1 && r.next.Times > leastSupport
	}
	return of > 1 && 4*right >= 3*of
}

// Score is how many of the last windows that were judged, eight at most, were right.
func (r *Rhythm) Score() (right, of int) {
	if r == nil {
		return 0, 0
	}
	of = min(r.judged, 8)
	return bits.OnesCount8(r.verdicts & uint8(1<<of-1)), of
}

// Scored says for people what [Rhythm.Score] is.
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

// Judged is how many windows have been judged.
func (r *Rhythm) Judged() int {
	if r == nil {
		return 0
	}
	return r.judged
}

// Last is the verdict on the last window that was judged; zero if none was.
func (r *Rhythm) Last() Verdict {
	if r == nil {
		return Verdict{}
	}
	return r.last
}

// Likely says whether there usually is a visit in the half hour of t or the next one.
func (r *Rhythm) Likely(t time.Time) bool { return r != nil && r.hours.likely(t) }

// NextLikely is when the next half hour begins, after that of t, in which there usually is a visit.
func (r *Rhythm) NextLikely(t time.Time) (begin time.Time, known bool) {
	if r == nil || !r.hours.any {
		return time.Time{}, false
	}
	for k := int64(1); k <= slots; k++ {
		if begin := time.Unix((slotOf(t)+k)*slotSeconds, 0).In(t.Location()); r.hours.likely(begin) {
			return begin, true
		}
	}
	return time.Time{}, false
}

// HourAfter is when what [Rhythm.Likely] says at t may change next.
func HourAfter(t time.Time) time.Time {
	return time.Unix((slotOf(t)+1)*slotSeconds, 0).In(t.Location())
}

// Hour says why [Rhythm.Likely] is what it is, for people.
func (r *Rhythm) Hour(t time.Time) string {
	begin := time.Unix(slotOf(t)*slotSeconds, 0).In(t.Location())
	return fmt.Sprintf("between %s and %s there was a request on most of the last days", begin.UTC().Format("15:04"), begin.UTC().Add(2*slotSeconds*time.Second).Format("15:04 MST"))
}
