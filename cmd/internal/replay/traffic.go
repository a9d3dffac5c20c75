package replay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/simulate"
)

// Traffic is a record's information on requests, models and devices.
type Traffic struct {
	From, To time.Time
	// Requests are in the order of their arrival; their model is the function's name.
	Requests simulate.Trace
	// Of describes each function's requests.
	Of map[api.FunctionName]*Told
	// Functions are all functions, in their last known state, by name.
	Functions []admin.Function
	// Devices are those of the last segment.
	Devices []inventory.Device
	// GPUHours and HostHours count devices with an instance that did not sleep; hosts, those with instances without GPUs.
	GPUHours, HostHours float64
}

// Told describes a function's requests.
type Told struct {
	// Guessed is how many of them are only counted, without a time.
	Guessed int
	// Untold is how many have default lengths, because their function's tokens are unknown.
	Untold int
	// ColdHits, Starts and Wakes are the day's counts.
	ColdHits, Starts, Wakes int
}

// Then is what really happened to the simulated functions.
type Then struct {
	GPUHours  float64 `json:"gpu_hours"`
	HostHours float64 `json:"host_hours"`
	ColdHits  int     `json:"cold_hits"`
	Starts    int     `json:"starts"`
	Wakes     int     `json:"wakes"`
}

// Lengths of requests if unknown: those of rouse simulate's own traces.
const (
	usualPrompt = 1000
	usualOutput = 130
)

// traffic collects a Traffic.
type traffic struct {
	doors     map[door]*atDoor
	arrivals  map[api.FunctionName][]time.Time
	used      map[user]autoscaler.UsedBy
	sums      map[api.FunctionName]*autoscaler.UsedBy
	functions map[api.FunctionName]admin.Function
	t         Traffic
}

type (
	door struct {
		run, activator string
		function       api.FunctionName
	}
	// atDoor is an activator's last report on a function.
	atDoor struct {
		there int // waiting and running
		last  time.Time
	}
	user struct {
		door
		instance api.InstanceID
		who      string
	}
)

// Traffic replays the record to collect its requests.
func (r *Record) Traffic(ctx context.Context) (Traffic, error) {
	c := &traffic{doors: map[door]*atDoor{}, arrivals: map[api.FunctionName][]time.Time{}, used: map[user]autoscaler.UsedBy{},
		sums: map[api.FunctionName]*autoscaler.UsedBy{}, functions: map[api.FunctionName]admin.Function{}, t: Traffic{Of: map[api.FunctionName]*Told{}}}
	for _, s := range r.Segments {
		var last round
		var before map[api.FunctionName]admin.Learned
		for next, err := range r.rounds(ctx, s) {
			if err != nil && ctx.Err() != nil {
				return c.t, context.Cause(ctx)
			}
			if err != nil {
				break // the part that can be replayed counts
			}
			if before == nil {
				before = learned(next.replay)
				c.t.From = cmp.Or(c.t.From, next.At)
			}
			c.take(s.Run, next, last)
			last = next
		}
		if last.replay != nil {
			c.end(last, before)
		}
	}
	c.trace()
	return c.t, nil
}

func learned(r *autoscaler.Replay) map[api.FunctionName]admin.Learned {
	of := make(map[api.FunctionName]admin.Learned)
	for _, f := range r.Functions() {
		of[f.Function.Name] = f.Learned
	}
	return of
}

// take processes a round. last is the previous one of the same segment.
func (c *traffic) take(run string, next, last round) {
	if last.replay != nil {
		hours := next.At.Sub(last.At).Hours()
		c.t.GPUHours += float64(last.gpus) * hours
		c.t.HostHours += float64(last.hosts) * hours
	}
	for _, d := range next.Seen.Demands {
		c.demand(run, d, next.replay.Awake(d.Function))
	}
	for _, u := range next.Seen.Used {
		for _, by := range u.By {
			c.use(user{door{run, u.Activator, u.Function}, by.Instance, by.Who}, by)
		}
	}
	c.t.To = next.At
}

// demand derives arrivals from a demand: one for each new time of the last request, and more if the number of requests grew.
func (c *traffic) demand(run string, d api.Demand, awake bool) {
	at := door{run, d.Activator, d.Function}
	known := c.doors[at]
	if known == nil {
		known = &atDoor{last: d.LastRequest}
		c.doors[at] = known
		if d.Waiting+d.Running == 0 {
			return // it came before the record
		}
		known.last = time.Time{}
	}
	there := d.Waiting + d.Running
	if d.LastRequest.After(known.last) {
		for range max(1, there-known.there) {
			c.arrivals[d.Function] = append(c.arrivals[d.Function], d.LastRequest)
			if !awake {
				c.told(d.Function).ColdHits++
			}
		}
		known.last = d.LastRequest
	}
	known.there = there
}

// use adds the usage since the previous report.
func (c *traffic) use(who user, now autoscaler.UsedBy) {
	before, known := c.used[who]
	c.used[who] = now
	if !known || !before.Begun.Equal(now.Begun) || now.Requests < before.Requests {
		before = autoscaler.UsedBy{} // the count restarted; earlier usage can't be separated
	}
	sum := c.sums[who.function]
	if sum == nil {
		sum = &autoscaler.UsedBy{}
		c.sums[who.function] = sum
	}
	sum.Requests += now.Requests - before.Requests
	sum.Input += max(0, now.Input-before.Input)
	sum.Output += max(0, now.Output-before.Output)
}

// end processes the end of a segment.
func (c *traffic) end(last round, before map[api.FunctionName]admin.Learned) {
	c.t.Devices = slices.Clone(last.replay.Devices())
	for _, f := range last.replay.Functions() {
		c.functions[f.Function.Name] = f
		told := c.told(f.Function.Name)
		told.Starts += max(0, f.Learned.Starts-before[f.Function.Name].Starts)
		told.Wakes += max(0, f.Learned.Wakes-before[f.Function.Name].Wakes)
	}
}

func (c *traffic) told(name api.FunctionName) *Told {
	if c.t.Of[name] == nil {
		c.t.Of[name] = &Told{}
	}
	return c.t.Of[name]
}

// trace creates the requests: for each function as many as were counted, at the known times, and with the mean number of tokens.
func (c *traffic) trace() {
	for name, times := range c.arrivals {
		prompt, output := usualPrompt, usualOutput
		sum := c.sums[name]
		if sum != nil && sum.Requests > 0 && sum.Input+sum.Output > 0 {
			prompt, output = max(1, int(sum.Input/sum.Requests)), max(1, int(sum.Output/sum.Requests))
		} else {
			c.told(name).Untold += len(times)
		}
		slices.SortFunc(times, time.Time.Compare)
		if sum != nil {
			times = c.fill(name, times, int(sum.Requests))
		}
		for _, at := range times {
			c.t.Requests = append(c.t.Requests, simulate.Arrival{At: max(0, at.Sub(c.t.From)), Model: api.ModelName(name), Prompt: prompt, Output: output})
		}
	}
	slices.SortStableFunc(c.t.Requests, func(a, b simulate.Arrival) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Model, b.Model))
	})
	for _, f := range c.functions {
		c.t.Functions = append(c.t.Functions, f)
	}
	slices.SortFunc(c.t.Functions, func(a, b admin.Function) int { return cmp.Compare(a.Function.Name, b.Function.Name) })
}

// fill adds requests up to n to those with known times: spread evenly over them, each at the time of a known one.
func (c *traffic) fill(name api.FunctionName, times []time.Time, n int) []time.Time {
	missing := n - len(times)
	if missing <= 0 || len(times) == 0 {
		return times
	}
	c.told(name).Guessed += missing
	known := len(times)
	for k := range missing {
		times = append(times, times[int(int64(k)*int64(known)/int64(missing))])
	}
	return times
}
