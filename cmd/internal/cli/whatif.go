package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/simulate"
)

// whatIf is the simulated result of policies, for functions that use GPUs or for others, which share only host memory.
type whatIf struct {
	From     time.Time         `json:"from"`
	To       time.Time         `json:"to"`
	GPUs     bool              `json:"gpus"`
	Requests int               `json:"requests"`
	Models   int               `json:"models"`
	Policies []simulate.Result `json:"policies"`
	Then     Then              `json:"then"`
	// Assumes lists, in sentences, what is assumed besides the record.
	Assumes []string `json:"assumes"`
}

func knownPolicies(policies []string) error {
	for _, p := range policies {
		if !slices.Contains(simulate.All, p) {
			return fmt.Errorf("--policy %s: want %s", p, strings.Join(simulate.All, ", "))
		}
	}
	return nil
}

// WhatIf simulates the functions that use GPUs, then the others. If one kind can't be simulated, the other's result says so.
func (r *recording) WhatIf(ctx context.Context, policies []string) (list []whatIf, err error) {
	if err := knownPolicies(policies); err != nil {
		return nil, err
	}
	t, err := r.traffic(ctx)
	if err != nil {
		return nil, err
	}
	var parts [2][]*told // with GPUs, without
	total, gone := 0, 0
	for _, name := range slices.Sorted(maps.Keys(t.of)) {
		f := t.of[name]
		f.count(t.from)
		total += len(f.requests)
		switch {
		case f.function.Function.Name == "":
			gone += len(f.requests)
		case f.function.Need.Devices > 0:
			parts[0] = append(parts[0], f)
		default:
			parts[1] = append(parts[1], f)
		}
	}
	if total == 0 {
		return nil, errors.New("no request came while this was recorded: there is nothing to compare policies by")
	}
	var refused error
	for k, part := range parts {
		if !slices.ContainsFunc(part, func(f *told) bool { return len(f.requests) > 0 }) {
			continue
		}
		w, err := t.whatIf(ctx, k == 0, part, policies)
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
		list[0].assume("%d of %d requests are left out: their functions are gone", gone, total)
	}
	return list, nil
}

func (t *traffic) whatIf(ctx context.Context, onGPUs bool, functions []*told, policies []string) (whatIf, error) {
	w := whatIf{From: t.from, To: t.to, GPUs: onGPUs, Then: Then{GPUHours: t.gpuHours, HostHours: t.hostHours}}
	cfg, err := t.machines(&w)
	if err != nil {
		return w, err
	}
	trace, err := w.models(&cfg, functions)
	if err != nil {
		return w, err
	}
	w.Requests, w.Models = len(trace), len(cfg.Models)
	for _, p := range policies {
		result, err := simulate.Run(ctx, cfg, trace, t.to.Sub(t.from), simulate.Policy{Name: p})
		if err != nil {
			return w, err
		}
		w.Policies = append(w.Policies, result)
	}
	return w, nil
}

func (w *whatIf) assume(format string, args ...any) {
	w.Assumes = append(w.Assumes, fmt.Sprintf(format, args...))
}

// machines returns the simulator's most similar world, without models.
func (t *traffic) machines(w *whatIf) (simulate.Config, error) {
	cfg := simulate.Config{Nodes: 1, Hold: time.Second, MaxScale: 1}
	nodes := make(map[string]bool)
	var gpus, hosts []inventory.Device
	for _, d := range t.devices {
		if nodes[d.Node] = true; d.IsHost() {
			hosts = append(hosts, d)
		} else {
			gpus = append(gpus, d)
		}
	}
	least := func(list []inventory.Device) api.Bytes {
		return slices.MinFunc(list, func(a, b inventory.Device) int { return cmp.Compare(a.Capacity, b.Capacity) }).Capacity
	}
	if len(hosts) == 0 || w.GPUs && len(gpus) == 0 {
		return cfg, errors.New("at the end of the record there are no devices that the functions could have run on")
	}
	cfg.HostMemory = least(hosts)
	if w.GPUs {
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
	return cfg, nil
}

// models adds the models that fit, and returns their requests.
func (w *whatIf) models(cfg *simulate.Config, functions []*told) (trace simulate.Trace, err error) {
	published, rates, guessed, untold, out := 0, 0, 0, 0, 0
	for _, f := range functions {
		if len(f.requests) > 0 {
			m, measured := model(f.function, w.GPUs, *cfg)
			if m.Device > cfg.DeviceMemory || m.Host > cfg.HostMemory || m.GPUs > cfg.Devices/cfg.Nodes {
				out += len(f.requests)
				continue
			}
			if !measured {
				published++
			}
			if f.function.Learned.TokenRate > 0 {
				rates++
			}
			spec := f.function.Function
			cfg.Models = append(cfg.Models, m)
			cfg.Hold, cfg.MaxScale = max(cfg.Hold, spec.Hold.Timeout), max(cfg.MaxScale, spec.MaxScale)
			trace = append(trace, f.requests...)
		}
		guessed, untold = guessed+f.guessed, untold+f.untold
		w.Then.ColdHits, w.Then.Starts, w.Then.Wakes = w.Then.ColdHits+f.coldHits, w.Then.Starts+f.starts, w.Then.Wakes+f.wakes
	}
	if len(trace) == 0 {
		return nil, errors.New("of the functions that were asked for none can be simulated: they need more than a device has")
	}
	slices.SortStableFunc(trace, func(a, b simulate.Arrival) int { return cmp.Compare(a.At, b.At) })
	if published > 0 {
		w.assume("of %d of %d models the time to load, to wake or per token was not measured: those published for vLLM on GPUs of 80 GB stand for it", published, len(cfg.Models))
	}
	if rates > 0 {
		w.assume("the tokens a second that %d of %d models were measured to give are those of a request that is alone", rates, len(cfg.Models))
	}
	if out > 0 {
		w.assume("%d of %d requests are left out: their functions need more than a device has", out, out+len(trace))
	}
	if guessed > 0 {
		w.assume("of %d requests only the number is known: they come at the times of the others", guessed)
	}
	if untold > 0 {
		w.assume("nothing was told of the tokens of %d requests: they have %d and %d", untold, usualPrompt, usualOutput)
	}
	w.assume("requests have the mean number of tokens of their function, and come when they came, however late the answers before are")
	return trace, nil
}

// model's times are f's own if measured.
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
