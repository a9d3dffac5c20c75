package cli

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

type traffic struct {
	from, to time.Time
	of       map[api.FunctionName]*told
	devices  []inventory.Device // of the last segment
	// gpuHours and hostHours count devices with an instance that did not sleep; hosts, those with instances without GPUs.
	gpuHours, hostHours float64

	doors map[recordedDoor]*atDoor           // an activator's last report on a function
	used  map[recordedUser]autoscaler.UsedBy // counts as last reported
}

type told struct {
	// function is the last known; its name is empty if it is gone.
	function admin.Function
	// arrivals are known times, sum the counts of all requests.
	arrivals                []time.Time
	sum                     autoscaler.UsedBy
	coldHits, starts, wakes int
	// requests are set by count. Only the number of guessed ones is known, no lengths of untold ones.
	requests        simulate.Trace
	guessed, untold int
}

// Then holds the real results of the simulated functions.
type Then struct {
	GPUHours  float64 `json:"gpu_hours"`
	HostHours float64 `json:"host_hours"`
	ColdHits  int     `json:"cold_hits"`
	Starts    int     `json:"starts"`
	Wakes     int     `json:"wakes"`
}

// Lengths of requests if unknown, as in rouse simulate's traces.
const (
	usualPrompt = 1000
	usualOutput = 130
)

type (
	recordedDoor struct {
		run, activator string
		function       api.FunctionName
	}
	atDoor struct {
		there int // waiting and running
		last  time.Time
	}
	recordedUser struct {
		recordedDoor
		instance api.InstanceID
		who      string
	}
)

func (r *recording) traffic(ctx context.Context) (*traffic, error) {
	t := &traffic{of: map[api.FunctionName]*told{}, doors: map[recordedDoor]*atDoor{}, used: map[recordedUser]autoscaler.UsedBy{}}
	for _, s := range r.Segments {
		var last *autoscaler.Replay
		var before map[api.FunctionName]admin.Learned
		var at time.Time
		gpus, hosts := 0, 0 // held since at
		for next, err := range rounds(ctx, s) {
			if err != nil && ctx.Err() != nil {
				return t, context.Cause(ctx)
			}
			if err != nil {
				break // what can be replayed counts
			}
			if last == nil {
				last, before, at = next.replay, learned(next.replay), next.At
				t.from = cmp.Or(t.from, at)
			}
			hours := next.At.Sub(at).Hours()
			t.gpuHours += float64(gpus) * hours
			t.hostHours += float64(hosts) * hours
			t.take(s.Run, next)
			gpus, hosts = last.Held()
			at, t.to = next.At, next.At
		}
		if last != nil {
			t.end(last, before)
		}
	}
	return t, nil
}

func learned(r *autoscaler.Replay) map[api.FunctionName]admin.Learned {
	of := make(map[api.FunctionName]admin.Learned)
	for _, f := range r.Functions() {
		of[f.Function.Name] = f.Learned
	}
	return of
}

func (t *traffic) take(run string, next round) {
	for _, d := range next.Seen.Demands {
		t.demand(run, d, next.replay.Awake(d.Function))
	}
	for _, u := range next.Seen.Used {
		for _, by := range u.By {
			t.use(recordedUser{recordedDoor{run, u.Activator, u.Function}, by.Instance, by.Who}, by)
		}
	}
}

// demand derives an arrival from each new last request, and more if their number grew.
func (t *traffic) demand(run string, d api.Demand, awake bool) {
	at := recordedDoor{run, d.Activator, d.Function}
	there := d.Waiting + d.Running
	known := t.doors[at]
	if known == nil {
		known = &atDoor{last: d.LastRequest}
		t.doors[at] = known
		if there == 0 {
			return // it came before the record
		}
		known.last = time.Time{}
	}
	if d.LastRequest.After(known.last) {
		f := t.told(d.Function)
		for range max(1, there-known.there) {
			f.arrivals = append(f.arrivals, d.LastRequest)
			if !awake {
				f.coldHits++
			}
		}
		known.last = d.LastRequest
	}
	known.there = there
}

func (t *traffic) use(who recordedUser, now autoscaler.UsedBy) {
	before, known := t.used[who]
	t.used[who] = now
	if !known || !before.Begun.Equal(now.Begun) || now.Requests < before.Requests {
		before = autoscaler.UsedBy{} // the count restarted; earlier usage can't be separated
	}
	sum := &t.told(who.function).sum
	sum.Requests += now.Requests - before.Requests
	sum.Input += max(0, now.Input-before.Input)
	sum.Output += max(0, now.Output-before.Output)
}

func (t *traffic) end(last *autoscaler.Replay, before map[api.FunctionName]admin.Learned) {
	t.devices = slices.Clone(last.Devices())
	for _, f := range last.Functions() {
		told, was := t.told(f.Function.Name), before[f.Function.Name]
		told.function = f
		told.starts += max(0, f.Learned.Starts-was.Starts)
		told.wakes += max(0, f.Learned.Wakes-was.Wakes)
	}
}

func (t *traffic) told(name api.FunctionName) *told {
	if t.of[name] == nil {
		t.of[name] = &told{}
	}
	return t.of[name]
}

// count gives requests the mean number of tokens, and spreads those without a known time evenly over the known ones.
func (f *told) count(from time.Time) {
	slices.SortFunc(f.arrivals, time.Time.Compare)
	known := len(f.arrivals)
	if known == 0 {
		return
	}
	a := simulate.Arrival{Model: api.ModelName(f.function.Function.Name), Prompt: usualPrompt, Output: usualOutput}
	if s := f.sum; s.Requests > 0 && s.Input+s.Output > 0 {
		a.Prompt, a.Output = max(1, int(s.Input/s.Requests)), max(1, int(s.Output/s.Requests))
	} else {
		f.untold = known
	}
	f.guessed = max(0, int(f.sum.Requests)-known)
	for k := range known + f.guessed {
		at := k
		if k >= known {
			at = int(int64(k-known) * int64(known) / int64(f.guessed))
		}
		a.At = max(0, f.arrivals[at].Sub(from))
		f.requests = append(f.requests, a)
	}
}
