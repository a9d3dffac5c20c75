package inventory

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Stopped is the level below every sleep: there is no process. It stands
// beside [api.Level1] and [api.Level2] wherever a way back is measured.
const Stopped api.Level = 3

// gain is the weight of a new measurement in an exponential average.
const gain = 0.3

// Durations assumed while nothing has been measured. They only order choices.
const (
	assumedLoad  = 3 * time.Second
	assumedSleep = 500 * time.Millisecond
)

// Experience is what was learned of one function's instances. Its zero value
// has learned nothing. It is a value: its methods return what changed.
type Experience struct {
	// Load is the time from the start of a process to awake; 0 while unknown.
	Load time.Duration
	// Wake is the time from asleep to awake by level; 0 while unknown. Index 0 is unused.
	Wake [Stopped]time.Duration
	// Sleep is the time from awake to asleep, draining not counted; 0 while unknown.
	Sleep time.Duration
	// FirstSleep is that of a process that has not slept before; 0 while unknown. For as long as no other was measured, Sleep is it too.
	FirstSleep time.Duration
	// Rests are the times from awake to asleep by level, without the first sleep at level 1 of a process; 0 while unknown.
	Rests [Stopped]time.Duration
	// Awake is what an awake instance was measured to use.
	Awake api.Memory
	// Asleep is what stays in use by level. Index 0 is unused.
	Asleep [Stopped]api.Memory
	// PromptRate and TokenRate are the tokens that one instance reads and generates in a
	// second where it has enough to do; 0 while unknown.
	PromptRate float64
	TokenRate  float64
	// Arrivals is when requests come.
	Arrivals Arrivals
	// Starts, Wakes and Sleeps count the measurements.
	Starts int
	Wakes  int
	Sleeps int
	// Again is how many of Sleeps were not the first of their process.
	Again int
	// Nodes are those where an instance was awake, so that the model's files are there; the
	// last one last. Empty where there is only one.
	Nodes []string
}

// Learned is the experience as people's tools read it.
func (e Experience) Learned() admin.Learned {
	return admin.Learned{Load: e.Load, Wake: e.Wake, Sleep: e.Sleep, FirstSleep: e.FirstSleep, Again: e.Again, Awake: e.Awake, Asleep: e.Asleep, PromptRate: e.PromptRate,
		TokenRate: e.TokenRate, Starts: e.Starts, Wakes: e.Wakes, Sleeps: e.Sleeps, Nodes: e.Nodes}
}

// Started learns from an instance that is awake for the first time.
func (e Experience) Started(s api.InstanceStatus) Experience {
	e.Load = average(e.Load, s.LoadTime)
	e.Starts++
	return e.ranAt(s.Node)
}

// mostNodes bounds how many nodes are remembered.
const mostNodes = 64

// ranAt notes that the model's files are on node.
func (e Experience) ranAt(node string) Experience {
	if node == "" || slices.Contains(e.Nodes, node) {
		return e
	}
	e.Nodes = append(slices.Clone(e.Nodes[max(0, len(e.Nodes)-mostNodes+1):]), node)
	return e
}

// Woken learns from an instance that came back from a sleep at level from.
func (e Experience) Woken(s api.InstanceStatus, from api.Level) Experience {
	if from >= api.Level1 && from < Stopped {
		e.Wake[from] = average(e.Wake[from], s.WakeTime)
		e.Wakes++
	}
	return e
}

// Slept learns from an instance that fell asleep, whether or not it was its process' first time.
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

// FirstRest is [Experience.Rest] of an instance whose process has not slept before.
func (e Experience) FirstRest() time.Duration { return max(e.FirstSleep, e.Rest()) }

// SlowFirst is how much longer the first sleep of a process takes than others; known is false while one of them was not measured.
func (e Experience) SlowFirst() (longer time.Duration, known bool) {
	return e.FirstSleep - e.Sleep, e.FirstSleep > 0 && e.Again > 0
}

// Measured learns from the memory that an instance reports in its state.
func (e Experience) Measured(s api.InstanceStatus) Experience {
	switch {
	case s.State == api.Awake:
		return e.inUse(s.Memory)
	case s.State == api.Asleep && s.Level >= api.Level1 && s.Level < Stopped:
		e.Asleep[s.Level] = s.Memory
	}
	return e
}

// Loaded learns from what an awake instance says of its work.
func (e Experience) Loaded(l api.Load) Experience {
	e.PromptRate = pace(e.PromptRate, l.PromptTokensPerSecond, l.Waiting > 0)
	e.TokenRate = pace(e.TokenRate, l.TokensPerSecond, l.Waiting > 0)
	return e
}

// pace rises at once. It falls, by average, only where the instance was full: one
// that has little to do is not slow.
func pace(old, v float64, full bool) float64 {
	switch {
	case !(v > 0) || v > 1e9: // no number either
		return old
	case v >= old:
		return v
	case full:
		return old + gain*(v-old)
	}
	return old
}

// inUse follows a rise at once and a fall slowly: memory promised too small
// costs a crash, memory promised too large costs a turn.
func (e Experience) inUse(m api.Memory) Experience {
	e.Awake.Host = creep(e.Awake.Host, m.Host)
	e.Awake.PerDevice = creep(e.Awake.PerDevice, m.PerDevice)
	e.Awake.Devices = max(e.Awake.Devices, m.Devices)
	return e
}

// Need is what one awake instance of f takes: what f declares, or what was
// measured where that is more, of devices only where f does not declare it; where both are nothing, assumed. What f did not
// declare is cut to the capacity of the host, so that it never makes a function
// impossible. certain says whether anything but assumption stands behind it.
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

// Residue is what an instance is expected to use after going to level: what
// was measured, else nothing. Hoping for too much is safe: the report of the
// instance says what it really holds before anybody else is given the memory.
func (e Experience) Residue(level api.Level) api.Memory {
	if level >= api.Level1 && level < Stopped {
		return e.Asleep[level]
	}
	return api.Memory{}
}

// Return is how long an instance is expected to take from level to awake.
// Unknown ones are guessed from those that are known; deeper is never quicker.
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
	}
	return max(load*7/10, e.Wake[api.Level1])
}

// Rest is how long an instance is expected to take from awake to asleep.
func (e Experience) Rest() time.Duration {
	switch {
	case e.Sleep > 0:
		return e.Sleep
	case e.Load > 0:
		return min(assumedSleep, e.Load/5)
	}
	return assumedSleep
}

// average moves old towards v; a v of 0 is no measurement.
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
