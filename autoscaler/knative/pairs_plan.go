package knative

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

func (pr *pairs) keepPairs(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		pr.mu.Lock()
		acts, next := Plan(pr.pairState())
		for k := range acts {
			pr.startAction(&acts[k])
		}
		pr.updateMarks()
		pr.mu.Unlock()
		in := time.Hour
		if !next.IsZero() {
			in = max(time.Millisecond, time.Until(next))
		}
		timer.Reset(in)
		select {
		case <-ctx.Done():
			return
		case <-pr.pairsDue:
		case <-timer.C:
		}
	}
}

func (pr *pairs) pairState() State {
	s := State{Now: time.Now(), Claims: map[api.FunctionName]int{}, Nodes: map[string]Node{}}
	claimed := map[string]int{}
	for _, r := range pr.revisions {
		if len(r.pods)+len(r.providers)+len(r.wants)+len(r.making)+r.raising == 0 {
			continue
		}
		for _, p := range r.pods {
			claimed[p.object.Spec.NodeName] += pr.nodes.claimedGPUs(p.object)
			if p.role == control.RoleRequester {
				s.Requesters = append(s.Requesters, p.asRequester())
			}
		}
		for _, p := range r.providers {
			s.Providers = append(s.Providers, p.asProvider())
		}
		for id, m := range r.making {
			s.Providers = append(s.Providers, Provider{ID: id, Function: r.name, Node: m.node, Devices: m.devices, Busy: true, Bound: m.bound(), Since: m.since})
		}
		if d, err := pr.deployment(r.name); err == nil {
			r.adoptScale(d)
		}
		for _, w := range r.wants {
			s.Wants = append(s.Wants, Want{ID: w.id, Function: r.name, Provider: w.provider, Devices: w.grant.Devices,
				Node: pr.nodes.nodeOf(w.grant.Devices), Need: w.grant.Memory.PerDevice, Since: w.marks.Asked})
		}
		s.Claims[r.name] = max(0, r.want) + r.raising
	}
	for _, p := range pr.leaving {
		if finished(p.object) && p.role == control.RoleRequester && p.pair.bound == "" && p.pair.released {
			continue
		}
		switch p.role {
		case control.RoleRequester:
			claimed[p.object.Spec.NodeName] += pr.nodes.claimedGPUs(p.object)
			s.Requesters = append(s.Requesters, p.asRequester())
		case control.RoleProvider:
			s.Providers = append(s.Providers, p.asProvider())
		}
	}
	for name, n := range pr.nodes.byName {
		if len(n.ids) > 0 && !n.shared {
			s.Nodes[name] = Node{Owned: n.owned, Free: len(n.ids) - claimed[name], Memory: n.memory}
		}
	}
	return s
}

func (p *pod) asRequester() Requester {
	r := Requester{ID: p.id, Function: p.function, Node: p.object.Spec.NodeName, Bound: p.pair.bound,
		Leaving: p.ended || p.stopping, Released: p.pair.released, Spent: p.pair.spent, Since: p.pair.since}
	if p.joined() || p.pair.bound != "" { // after a restart it is bound before it has joined again
		r.Devices = p.devices
	}
	return r
}

func (p *pod) asProvider() Provider {
	residue := api.Bytes(0)
	if p.status.State == api.Asleep {
		residue = p.status.Memory.PerDevice
	}
	return Provider{ID: p.id, Function: p.function, Node: NodeOf(p.object), Devices: p.devices,
		Asleep: p.pair.down || finished(p.object), Process: p.status.PID != 0, Busy: p.pair.busy || p.rising || p.falling,
		Leaving: p.ended || p.stopping, Stuck: p.pair.stuck, Bound: p.pair.bound, Since: p.pair.since, Used: p.pair.used,
		Residue: residue, Unheard: p.status.Seq == 0 && p.pair.marks.Asked.IsZero() && !p.ended && time.Since(p.seen) < unheardFor}
}
