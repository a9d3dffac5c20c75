package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/simulate"
)

// WhatIf is the simulated result of policies on a record's requests: for functions that use GPUs, or for those that use none. The two share only host memory,
// and each is simulated without the other.
type WhatIf struct {
	From     time.Time         `json:"from"`
	To       time.Time         `json:"to"`
	GPUs     bool              `json:"gpus"`
	Requests int               `json:"requests"`
	Models   int               `json:"models"`
	Policies []simulate.Result `json:"policies"`
	// Then is what really happened, which the simulator does not know.
	Then Then `json:"then"`
	// Assumes lists, in sentences, what is assumed in addition to the record.
	Assumes []string `json:"assumes"`
}

// KnownPolicies reports unknown names of policies; nil: none.
func KnownPolicies(policies []string) error {
	for _, p := range policies {
		if !slices.Contains(simulate.All, p) {
			return fmt.Errorf("--policy %s: want %s", p, strings.Join(simulate.All, ", "))
		}
	}
	return nil
}

// WhatIf simulates policies on the record: first for the functions that use GPUs, then for the others. An empty kind is left out; if one kind can't be
// simulated, the other's result says so.
func (r *Record) WhatIf(ctx context.Context, policies []string) (list []WhatIf, err error) {
	if err := KnownPolicies(policies); err != nil {
		return nil, err
	}
	t, err := r.Traffic(ctx)
	if err != nil {
		return nil, err
	}
	if len(t.Requests) == 0 {
		return nil, errors.New("no request came while this was recorded: there is nothing to compare policies by")
	}
	var refused error
	gone := len(t.Requests)
	for _, onGPUs := range []bool{true, false} {
		part := t.only(onGPUs)
		gone -= len(part.Requests)
		if len(part.Requests) == 0 {
			continue
		}
		w, err := part.whatIf(ctx, onGPUs, policies)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			refused = err
			continue
		}
		list = append(list, w)
	}
	switch {
	case len(list) == 0 && refused == nil:
		return nil, errors.New("of the functions that were asked for none can be simulated: they are gone")
	case len(list) == 0:
		return nil, refused
	case refused != nil:
		list[0].assume("the other functions are left out: %v", refused)
	}
	if gone > 0 {
		list[0].assume("%d of %d requests are left out: their functions are gone", gone, len(t.Requests))
	}
	return list, nil
}

// only returns the part of t for functions that use GPUs, or none.
func (t *Traffic) only(onGPUs bool) Traffic {
	part, has := *t, make(map[api.ModelName]bool)
	part.Functions = slices.DeleteFunc(slices.Clone(t.Functions), func(f admin.Function) bool { return (f.Need.Devices > 0) != onGPUs })
	for _, f := range part.Functions {
		has[api.ModelName(f.Function.Name)] = true
	}
	part.Requests = slices.DeleteFunc(slices.Clone(t.Requests), func(a simulate.Arrival) bool { return !has[a.Model] })
	return part
}

func (t *Traffic) whatIf(ctx context.Context, onGPUs bool, policies []string) (WhatIf, error) {
	w := WhatIf{From: t.From, To: t.To, GPUs: onGPUs}
	cfg, trace, err := t.world(&w)
	if err != nil {
		return w, err
	}
	w.Requests, w.Models = len(trace), len(trace.Models())
	for _, p := range policies {
		result, err := simulate.Run(ctx, cfg, trace, t.To.Sub(t.From), simulate.Policy{Name: p})
		if err != nil {
			return w, err
		}
		w.Policies = append(w.Policies, result)
	}
	return w, nil
}

func (w *WhatIf) assume(format string, args ...any) {
	w.Assumes = append(w.Assumes, fmt.Sprintf(format, args...))
}

// world returns the simulator's world that is most similar to the recorded one, and the requests that are possible in it.
func (t *Traffic) world(w *WhatIf) (simulate.Config, simulate.Trace, error) {
	cfg := simulate.Config{Nodes: 1, Hold: time.Second, MaxScale: 1}
	nodes := make(map[string]bool)
	var gpus, hosts []inventory.Device
	for _, d := range t.Devices {
		if nodes[d.Node] = true; d.IsHost() {
			hosts = append(hosts, d)
		} else {
			gpus = append(gpus, d)
		}
	}
	onGPUs := w.GPUs
	least := func(list []inventory.Device) api.Bytes {
		return slices.MinFunc(list, func(a, b inventory.Device) int { return cmp.Compare(a.Capacity, b.Capacity) }).Capacity
	}
	if len(hosts) == 0 || onGPUs && len(gpus) == 0 {
		return cfg, nil, errors.New("at the end of the record there are no devices that the functions could have run on")
	}
	cfg.HostMemory = least(hosts)
	if onGPUs {
		cfg.Devices, cfg.DeviceMemory = len(gpus), least(gpus)
		if cfg.Nodes = len(nodes); len(gpus)%cfg.Nodes != 0 {
			cfg.Nodes = 1
			w.assume("all %d GPUs are in one machine: the simulator knows only machines that have as many each", len(gpus))
		}
	} else {
		cfg.Devices, cfg.DeviceMemory, cfg.Nodes = len(hosts), cfg.HostMemory, len(hosts)
		w.assume("these functions use no GPU: each machine's memory stands for one, and GPU-hours are those of machines that have a model awake")
	}
	if nodes[""] {
		cfg.Pod = time.Millisecond // instances are processes
	}
	leftOut := t.models(&cfg, onGPUs, w)
	trace := slices.DeleteFunc(slices.Clone(t.Requests), func(a simulate.Arrival) bool { return leftOut[a.Model] })
	if len(leftOut) > 0 {
		w.assume("%d of %d requests are left out: their functions need more than a device has", len(t.Requests)-len(trace), len(t.Requests))
	}
	if len(trace) == 0 {
		return cfg, nil, errors.New("of the functions that were asked for none can be simulated: they need more than a device has")
	}
	guessed, untold := t.tell(w, leftOut)
	if guessed > 0 {
		w.assume("of %d requests only the number is known: they come at the times of the others", guessed)
	}
	if untold > 0 {
		w.assume("nothing was told of the tokens of %d requests: they have %d and %d", untold, usualPrompt, usualOutput)
	}
	w.assume("requests have the mean number of tokens of their function, and come when they came, however late the answers before are")
	return cfg, trace, nil
}

// tell counts what really happened to the simulated functions, and how many of their requests are only partly known.
func (t *Traffic) tell(w *WhatIf, leftOut map[api.ModelName]bool) (guessed, untold int) {
	w.Then.GPUHours, w.Then.HostHours = t.GPUHours, t.HostHours
	for _, f := range t.Functions {
		told := t.Of[f.Function.Name]
		if told == nil || leftOut[api.ModelName(f.Function.Name)] {
			continue
		}
		guessed, untold = guessed+told.Guessed, untold+told.Untold
		w.Then.ColdHits, w.Then.Starts, w.Then.Wakes = w.Then.ColdHits+told.ColdHits, w.Then.Starts+told.Starts, w.Then.Wakes+told.Wakes
	}
	return guessed, untold
}

// models adds the models that can be simulated; the others are left out.
func (t *Traffic) models(cfg *simulate.Config, onGPUs bool, w *WhatIf) (leftOut map[api.ModelName]bool) {
	leftOut = make(map[api.ModelName]bool)
	for _, name := range t.Requests.Models() {
		leftOut[name] = true
	}
	published, rates := 0, 0
	for _, f := range t.Functions {
		name := api.ModelName(f.Function.Name)
		if !leftOut[name] || onGPUs && f.Need.Devices == 0 {
			continue
		}
		m, measured := model(f, onGPUs, *cfg)
		if m.Device > cfg.DeviceMemory || m.Host > cfg.HostMemory || m.GPUs > cfg.Devices/cfg.Nodes {
			continue
		}
		if !measured {
			published++
		}
		if f.Learned.TokenRate > 0 {
			rates++
		}
		delete(leftOut, name)
		cfg.Models = append(cfg.Models, m)
		cfg.Hold, cfg.MaxScale = max(cfg.Hold, f.Function.Hold.Timeout), max(cfg.MaxScale, f.Function.MaxScale)
	}
	if published > 0 {
		w.assume("of %d of %d models the time to load, to wake or per token was not measured: those published for vLLM on GPUs of 80 GB stand for it", published, len(cfg.Models))
	}
	if rates > 0 {
		w.assume("the tokens a second that %d of %d models were measured to give are those of a request that is alone", rates, len(cfg.Models))
	}
	return leftOut
}

// model returns f as a simulator's model; measured reports whether its times are f's own.
func model(f admin.Function, onGPUs bool, cfg simulate.Config) (m simulate.Model, measured bool) {
	l, need := f.Learned, f.Need
	size := need.Host
	if onGPUs {
		size = need.PerDevice * api.Bytes(max(1, need.Devices))
	}
	m = simulate.NewModel(api.ModelName(f.Function.Name), max(size, 1), cfg.DeviceMemory)
	m.GPUs, m.Device, m.Host, m.Concurrency = max(1, need.Devices), need.PerDevice, need.Host, max(1, f.Function.Concurrency)
	if !onGPUs {
		m.Device, m.Host = need.Host, 0
	}
	for level := api.Level1; level <= api.Level2; level++ {
		m.Residue[level], m.HostResidue[level] = l.Asleep[level].PerDevice, l.Asleep[level].Host
		if !onGPUs {
			m.Residue[level], m.HostResidue[level] = l.Asleep[level].Host, 0
		}
		m.Residue[level], m.HostResidue[level] = min(m.Residue[level], m.Device), min(m.HostResidue[level], cfg.HostMemory)
		m.Wake[level] = cmp.Or(l.Wake[level], m.Wake[level])
	}
	m.Declared = &simulate.Declared{SleepAfter: cmp.Or(f.Function.SleepAfter, simulate.Forever), UnloadAfter: f.Function.UnloadAfter,
		NoPrewake: f.Function.NoPrewake, Rehearse: f.Function.Rehearse}
	m.FirstSleep = l.FirstSleep
	m.Load, m.Sleep = cmp.Or(l.Load, m.Load), cmp.Or(l.Sleep, m.Sleep)
	if l.PromptRate > 0 {
		m.Prefill = l.PromptRate
	}
	if l.TokenRate > 0 {
		m.Step = time.Duration(float64(time.Second) / l.TokenRate)
	}
	return m, l.Load > 0 && l.Wake[api.Level1] > 0 && l.PromptRate > 0 && l.TokenRate > 0
}
