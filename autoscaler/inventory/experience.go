package inventory

import (
	"math"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Stopped is the level below every sleep: there is no process.
const Stopped api.Level = 4

// gain is the weight of a new measurement.
const gain = 0.3

// Durations assumed before the first measurement. They only order choices.
const (
	assumedLoad  = 3 * time.Second
	assumedSleep = 500 * time.Millisecond
	// restoreRate is in bytes per second: a driver copies over PCIe 5 x16 at 10 to 25 GB/s.
	restoreRate = 15e9
)

// Experience has the measurements of one function; 0 is unknown. Its methods return the changed value.
type Experience struct {
	// Load is from the start of a process to awake.
	Load time.Duration
	// Wake is from asleep to awake, by level. Index 0 is unused.
	Wake [Stopped]time.Duration
	// Sleep is from awake to asleep, without draining.
	Sleep time.Duration
	// FirstSleep is a process's first. Until another was measured, Sleep is the same.
	FirstSleep time.Duration
	// Rests are Sleep by level, without a process's first sleep.
	Rests [Stopped]time.Duration
	Awake api.Memory
	// Asleep is the memory that stays in use, by level. Index 0 is unused.
	Asleep [Stopped]api.Memory
	// Tokens read and generated per second, by one instance under load.
	PromptRate float64
	TokenRate  float64
	Arrivals   Arrivals
	// Starts, Wakes and Sleeps count the measurements.
	Starts int
	Wakes  int
	Sleeps int
	// Again is how many of Sleeps were not their process's first.
	Again int
	// Nodes have the model's files, the last one last. Empty: there is one machine.
	Nodes []string
	// Snapshot is the last reported one.
	Snapshot *api.Snapshot
}

// Learned is for the admin API.
func (e Experience) Learned() admin.Learned {
	return admin.Learned{Load: e.Load, Wake: e.Wake, Sleep: e.Sleep, FirstSleep: e.FirstSleep, Again: e.Again, Awake: e.Awake, Asleep: e.Asleep, PromptRate: e.PromptRate,
		TokenRate: e.TokenRate, Starts: e.Starts, Wakes: e.Wakes, Sleeps: e.Sleeps, Nodes: e.Nodes, Snapshot: e.Snapshot}
}

// Started learns from an instance that is awake for the first time.
func (e Experience) Started(s api.InstanceStatus) Experience {
	e.Load = average(e.Load, s.LoadTime)
	e.Starts++
	return e.ranAt(s.Node)
}

const mostNodes = 64

func (e Experience) ranAt(node string) Experience {
	if node == "" || slices.Contains(e.Nodes, node) {
		return e
	}
	e.Nodes = append(slices.Clone(e.Nodes[max(0, len(e.Nodes)-mostNodes+1):]), node)
	return e
}

// Woken learns from a return from level from.
func (e Experience) Woken(s api.InstanceStatus, from api.Level) Experience {
	if from >= api.Level1 && from < Stopped {
		e.Wake[from] = average(e.Wake[from], s.WakeTime)
		e.Wakes++
	}
	return e
}

// Slept learns from a sleep; first: it was its process's first.
func (e Experience) Slept(s api.InstanceStatus, first bool) Experience {
	e.Sleeps++
	if !first && s.Level >= api.Level1 && s.Level < Stopped {
		e.Rests[s.Level] = average(e.Rests[s.Level], s.SleepTime)
	}
	switch {
	case first && e.Again > 0:
		e.FirstSleep = average(e.FirstSleep, s.SleepTime)
		return e
	case first:
		e.FirstSleep = average(e.FirstSleep, s.SleepTime)
	case s.SleepTime <= 0:
		return e
	default:
		if e.Again++; e.Again == 1 && e.FirstSleep > 0 {
			e.Sleep = s.SleepTime
			return e
		}
	}
	e.Sleep = average(e.Sleep, s.SleepTime)
	return e
}

// FirstRest is [Experience.Rest] for a process's first sleep.
func (e Experience) FirstRest() time.Duration { return max(e.FirstSleep, e.Rest()) }

// SlowFirst returns how much longer a first sleep takes.
func (e Experience) SlowFirst() (longer time.Duration, known bool) {
	return e.FirstSleep - e.Sleep, e.FirstSleep > 0 && e.Again > 0
}

// Measured learns from an instance's reported memory.
func (e Experience) Measured(s api.InstanceStatus) Experience {
	switch {
	case s.State == api.Awake:
		return e.inUse(s.Memory)
	case s.State == api.Asleep && s.Level >= api.Level1 && s.Level < Stopped:
		e.Asleep[s.Level] = s.Memory
	}
	return e
}

// Loaded learns from an awake instance's load.
func (e Experience) Loaded(l api.Load) Experience {
	e.PromptRate = pace(e.PromptRate, l.PromptTokensPerSecond, l.Waiting > 0)
	e.TokenRate = pace(e.TokenRate, l.TokensPerSecond, l.Waiting > 0)
	return e
}

// pace follows a rise at once. It falls only if the instance was full: one with little to do is not slow.
func pace(old, v float64, full bool) float64 {
	switch {
	case !(v > 0) || v > 1e9: // excludes NaN
		return old
	case v >= old:
		return v
	case full:
		return old + gain*(v-old)
	}
	return old
}

// inUse follows a fall slowly: an estimate that is too small causes a crash.
func (e Experience) inUse(m api.Memory) Experience {
	e.Awake.Host = creep(e.Awake.Host, m.Host)
	e.Awake.PerDevice = creep(e.Awake.PerDevice, m.PerDevice)
	e.Awake.Devices = max(e.Awake.Devices, m.Devices)
	return e
}

// Need returns the memory of one awake instance: declared; or measured, if that is more or no device memory is declared;
// or assumed, and certain is false. Undeclared memory is cut to the host's capacity: it never makes a function
// impossible.
func (e Experience) Need(f api.Function, assumed, host api.Bytes) (need api.Memory, certain bool) {
	need = f.Memory
	need.Host = max(need.Host, min(e.Awake.Host, host))
	if need.Devices > 0 && need.PerDevice == 0 && need.Share < 1 {
		need.PerDevice = e.Awake.PerDevice
	}
	if certain = need.Host > 0; !certain && need.Devices == 0 {
		need.Host = min(assumed, host)
	}
	return need, certain
}

// Residue returns what was measured at level. A low estimate is safe: the instance reports before memory is allocated
// again.
func (e Experience) Residue(level api.Level) api.Memory {
	if level >= api.Level1 && level < Stopped {
		return e.Asleep[level]
	}
	return api.Memory{}
}

// OffDevices returns the memory of a suspended sleeper that had m.
func OffDevices(m api.Memory) api.Memory {
	return api.Memory{Host: m.Host + m.PerDevice*api.Bytes(m.Devices)}
}

// Return returns the expected time from level to awake.
func (e Experience) Return(level api.Level) time.Duration {
	load := e.Load
	if load == 0 {
		load = max(assumedLoad, e.Wake[api.Level1], e.Wake[api.Level2])
	}
	switch {
	case level <= api.LevelAwake:
		return 0
	case level >= Stopped:
		return load
	case e.Wake[level] > 0:
		return e.Wake[level]
	case level == api.Level1:
		return load / 10
	case level == api.Suspended:
		m := e.Asleep[api.Level1]
		return e.Return(api.Level1) + time.Duration(float64(OffDevices(m).Host-m.Host)/restoreRate*float64(time.Second))
	}
	return max(load*7/10, e.Wake[api.Level1])
}

// Rest returns the expected time from awake to asleep.
func (e Experience) Rest() time.Duration {
	switch {
	case e.Sleep > 0:
		return e.Sleep
	case e.Load > 0:
		return min(assumedSleep, e.Load/5)
	}
	return assumedSleep
}

// average ignores 0.
func average(old, v time.Duration) time.Duration {
	if v <= 0 {
		return old
	}
	if old == 0 {
		return v
	}
	return old + time.Duration(gain*float64(v-old))
}

// creep rises at once and falls by average.
func creep(old, v api.Bytes) api.Bytes {
	if v >= old || v <= 0 {
		return max(old, v)
	}
	return old + api.Bytes(gain*float64(v-old))
}

const (
	// gapBuckets are a quarter of an octave wide, from a second to twelve days; the first and last are open.
	gapBuckets = 80
	// gapHalfLife is when a gap counts half.
	gapHalfLife = 24 * time.Hour
	// gapsKnown is the weight of gaps that a forecast needs.
	gapsKnown = 1.5
)

// Arrivals is a histogram of idle times. Older ones count less.
type Arrivals struct {
	// Of each bucket the number of gaps, and their sum in seconds.
	Count, Seconds [gapBuckets]float32
	// At is when the last gap ended.
	At time.Time
}

// Arrived learns that a request came at now after a gap.
func (e Experience) Arrived(gap time.Duration, now time.Time) Experience {
	a := &e.Arrivals
	if gap <= 0 {
		return e
	}
	if passed := now.Sub(a.At); passed > 0 && !a.At.IsZero() {
		keep := float32(math.Exp2(-passed.Hours() / gapHalfLife.Hours()))
		for k := range a.Count {
			a.Count[k] *= keep
			a.Seconds[k] *= keep
		}
	}
	a.At = now
	k := gapBucket(gap.Seconds())
	a.Count[k]++
	a.Seconds[k] += float32(gap.Seconds())
	return e
}

// Forecast returns the expected time until the next request after idle. known is false if too few gaps were that long.
func (a *Arrivals) Forecast(idle time.Duration) (until time.Duration, known bool) {
	t := max(0, idle.Seconds())
	var weight, sum float64
	for k := gapBucket(t); k < gapBuckets; k++ {
		n := float64(a.Count[k])
		if n == 0 {
			continue
		}
		left := float64(a.Seconds[k])/n - t
		if left <= 0 { // the mean of the bucket has passed: only its rest is left
			low, high := gapBounds(k)
			n *= max(0, high-t) / (high - low)
			left = max(0, high-t) / 2
		}
		weight, sum = weight+n, sum+n*left
	}
	if weight < gapsKnown {
		return 0, false
	}
	return time.Duration(sum / weight * float64(time.Second)), true
}

// gapsTold is the weight of gaps that a chance needs.
const gapsTold = 4

// Chance returns the probability that the next request after idle comes before limit. known is as in Forecast.
func (a *Arrivals) Chance(idle, limit time.Duration) (chance float64, known bool) {
	t, u := max(0, idle.Seconds()), limit.Seconds()
	var weight, within float64
	for k := gapBucket(t); k < gapBuckets; k++ {
		low, high := gapBounds(k)
		from := max(t, low)
		if from >= high {
			continue
		}
		n := float64(a.Count[k]) / (high - low)
		weight += n * (high - from)
		within += n * max(0, min(u, high)-from)
	}
	if weight < gapsTold {
		return 0, false
	}
	return within / weight, true
}

// Gap returns the mean gap.
func (a *Arrivals) Gap() (mean time.Duration, known bool) { return a.Forecast(0) }

func gapBucket(seconds float64) int {
	if seconds < 1 {
		return 0
	}
	return min(int(4*math.Log2(seconds)), gapBuckets-1)
}

func gapBounds(k int) (low, high float64) {
	if k > 0 {
		low = math.Exp2(float64(k) / 4)
	}
	return low, math.Exp2(float64(k+1) / 4)
}
