package knative

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/dualpod"
)

// keepPairs runs plans of pairs until ctx ends: it binds, separates, creates and releases pods.
func (f *Fleet) keepPairs(ctx context.Context) {
	run := runner{ctx: ctx}
	defer run.calls.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		f.mu.Lock()
		acts, next := dualpod.Plan(f.pairState())
		for k := range acts {
			f.carryOut(&run, &acts[k])
		}
		f.tellPairs(&run)
		f.mu.Unlock()
		in := time.Hour
		if !next.IsZero() {
			in = max(time.Millisecond, time.Until(next))
		}
		timer.Reset(in)
		select {
		case <-ctx.Done():
			return
		case <-f.pairs:
		case <-timer.C:
		}
	}
}

// pairState returns the input of a plan of pairs. The caller holds f.mu.
func (f *Fleet) pairState() dualpod.State {
	s := dualpod.State{Now: time.Now(), Claims: map[api.FunctionName]int{}, Nodes: map[string]dualpod.Node{}}
	claimed := map[string]int{}
	for _, r := range f.revisions {
		if len(r.pods)+len(r.providers)+len(r.wants)+len(r.making)+r.raising == 0 {
			continue
		}
		for _, p := range r.pods {
			claimed[p.object.Spec.NodeName] += f.gpusOf(p.object)
			if p.role == control.RoleRequester {
				s.Requesters = append(s.Requesters, p.asRequester())
			}
		}
		for _, p := range r.providers {
			s.Providers = append(s.Providers, p.asProvider())
		}
		for id, m := range r.making {
			s.Providers = append(s.Providers, dualpod.Provider{ID: id, Function: r.name, Node: m.node, Devices: m.devices, Busy: true, Bound: m.requester, Since: m.since})
		}
		if d, err := f.deployment(r.name); err == nil {
			f.takeOver(r, d)
		}
		for _, w := range r.wants {
			if w.ctx == nil {
				continue
			}
			s.Wants = append(s.Wants, dualpod.Want{ID: w.id, Function: r.name, Provider: w.provider, Devices: w.grant.Devices,
				Node: f.nodeOf(w.grant.Devices), Need: w.grant.Memory.PerDevice, Since: w.marks.Asked})
		}
		s.Claims[r.name] = max(0, r.want) + r.raising
	}
	for _, p := range f.leaving {
		if finished(p.object) && p.role == control.RoleRequester && p.pair.bound == "" && p.pair.released {
			continue
		}
		switch p.role {
		case control.RoleRequester:
			claimed[p.object.Spec.NodeName] += f.gpusOf(p.object)
			s.Requesters = append(s.Requesters, p.asRequester())
		case control.RoleProvider:
			s.Providers = append(s.Providers, p.asProvider())
		}
	}
	for name, n := range f.nodes {
		if len(n.ids) > 0 && !n.shared {
			s.Nodes[name] = dualpod.Node{Owned: n.owned, Free: len(n.ids) - claimed[name], Memory: n.memory}
		}
	}
	return s
}

// nodeOf returns the node of devices, "" if unknown. The caller holds f.mu.
func (f *Fleet) nodeOf(ids []api.DeviceID) string {
	for name, n := range f.nodes {
		for k, id := range n.ids {
			if slices.Contains(ids, cmp.Or(id, placeholder(name, k))) {
				return name
			}
		}
	}
	return ""
}

// gpusOf returns the number of GPUs that a pod claims.
func (f *Fleet) gpusOf(o *corev1.Pod) int {
	var n int64
	for k := range o.Spec.Containers {
		for _, name := range slices.Concat(api.GPUResources(), f.cfg.GPUResources) {
			q := o.Spec.Containers[k].Resources.Limits[corev1.ResourceName(name)]
			n += q.Value()
		}
	}
	return int(min(n, mostGPUs))
}

func (p *pod) asRequester() dualpod.Requester {
	r := dualpod.Requester{ID: p.id, Function: p.function, Node: p.object.Spec.NodeName, Bound: p.pair.bound,
		Leaving: p.ended || p.stopping, Released: p.pair.released, Spent: p.pair.spent, Since: p.pair.since}
	if p.joined() || p.pair.bound != "" { // after a restart it is bound before it has joined again
		r.Devices = p.devices
	}
	return r
}

func (p *pod) asProvider() dualpod.Provider {
	residue := api.Bytes(0)
	if p.status.State == api.Asleep {
		residue = p.status.Memory.PerDevice
	}
	return dualpod.Provider{ID: p.id, Function: p.function, Node: dualpod.NodeOf(p.object), Devices: p.devices,
		Asleep: p.pair.down || finished(p.object), Process: p.status.PID != 0, Busy: p.pair.busy || p.rising || p.falling,
		Leaving: p.ended || p.stopping, Stuck: p.pair.stuck, Bound: p.pair.bound, Since: p.pair.since, Used: p.pair.used,
		Residue: residue, Unheard: p.status.Seq == 0 && p.pair.marks.Asked.IsZero() && !p.ended && time.Since(p.seen) < unheardFor}
}
