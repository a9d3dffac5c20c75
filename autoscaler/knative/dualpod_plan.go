package knative

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
)

// plan is the state of one planning. It changes its own copies of the input.
type plan struct {
	State
	rs   []*Requester
	ps   []*Provider
	acts []Action
	next time.Time
}

// Plan returns what to do now, in order, and when to plan again even if nothing happens; a zero time: never.
//
//  1. Claims that are going, and partners that have gone: sleep, unbind.
//  2. Wants, the oldest first: the chosen sleeper, another, or a new provider.
//  3. Awake providers without a claim: bind, or put to sleep.
//  4. Unneeded claims go; missing claims are made.
func Plan(s State) ([]Action, time.Time) {
	p := &plan{State: s}
	p.Claims = maps.Clone(s.Claims)
	if p.Claims == nil {
		p.Claims = map[api.FunctionName]int{}
	}
	for _, r := range s.Requesters {
		p.rs = append(p.rs, &r)
	}
	for _, v := range s.Providers {
		p.ps = append(p.ps, &v)
	}
	slices.SortFunc(p.rs, func(a, b *Requester) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(p.ps, func(a, b *Provider) int { return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.ID, b.ID)) })
	p.part()
	open := p.serve()
	p.claimless()
	p.claims(open)
	return p.acts, p.next
}

func (p *plan) do(a Action) { p.acts = append(p.acts, a) }

// at has another plan made at t.
func (p *plan) at(t time.Time) {
	if p.next.IsZero() || t.Before(p.next) {
		p.next = t
	}
}

func (p *plan) requester(id api.InstanceID) *Requester {
	for _, r := range p.rs {
		if id != "" && r.ID == id {
			return r
		}
	}
	return nil
}

func (p *plan) provider(id api.InstanceID) *Provider {
	for _, v := range p.ps {
		if id != "" && v.ID == id {
			return v
		}
	}
	return nil
}

// part separates pairs that are no longer valid:
//
//  1. one of them does not exist, or is bound to another
//  2. the provider is being deleted, or sleeps
//  3. the requester is being deleted: its provider sleeps first; one that failed to sleep ends
func (p *plan) part() {
	for _, v := range p.ps {
		r := p.requester(v.Bound)
		if v.Bound != "" && (r == nil || r.Bound != v.ID) { // 1
			v.Bound = ""
			p.do(Action{Kind: Unbind, Function: v.Function, Provider: v.ID, Reason: "its requester is gone"})
		}
	}
	for _, r := range p.rs {
		v := p.provider(r.Bound)
		switch {
		case r.Bound == "":
		case v == nil || v.Bound != r.ID: // 1
			p.unbind(r, nil, "its provider is gone")
		case v.Leaving && !v.Asleep: // its claim holds until it is gone
		case v.Leaving: // 2
			p.unbind(r, v, "its provider is being deleted")
		case v.Asleep && !v.Busy:
			r.Spent = true
			p.unbind(r, v, "its provider sleeps")
		case v.Unheard:
		case r.Leaving && v.Stuck: // 3
			p.do(Action{Kind: Delete, Function: v.Function, Provider: v.ID, Reason: "its requester is being deleted and it could not be put to sleep"})
			v.Leaving = true
		case r.Leaving && !v.Busy:
			p.do(Action{Kind: Sleep, Function: v.Function, Provider: v.ID, Reason: "its requester is being deleted, and the claim with it"})
			v.Busy = true
		}
	}
}

func (p *plan) unbind(r *Requester, v *Provider, reason string) {
	a := Action{Kind: Unbind, Function: r.Function, Requester: r.ID, Reason: reason}
	r.Bound, r.Since = "", p.Now
	if v != nil {
		v.Bound, a.Provider = "", v.ID
	}
	p.do(a)
}

func (r *Requester) free() bool { return r.Bound == "" && !r.Leaving && len(r.Devices) > 0 }

func equal(a, b []api.DeviceID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(d api.DeviceID) bool { return !slices.Contains(b, d) })
}

func overlap(a, b []api.DeviceID) bool {
	return slices.ContainsFunc(a, func(d api.DeviceID) bool { return slices.Contains(b, d) })
}

// claimFor returns a free requester whose claim suits a provider at this place.
func (p *plan) claimFor(f api.FunctionName, node string, devices []api.DeviceID) *Requester {
	for _, r := range p.rs {
		if r.Function == f && r.free() && r.Node == node && (equal(r.Devices, devices) || p.Nodes[node].Owned) {
			return r
		}
	}
	return nil
}

// inTheWay returns a provider that is awake, or ending, on these devices. On a node of our own, awake ones fit together.
func (p *plan) inTheWay(self *Provider, node string, devices []api.DeviceID) *Provider {
	for _, v := range p.ps {
		if v == self || v.Node != node || v.Asleep && !v.Busy && !v.Leaving || !overlap(v.Devices, devices) {
			continue
		}
		if v.Leaving && !v.Asleep || !v.Leaving && !p.Nodes[node].Owned {
			return v
		}
	}
	return nil
}

// serve returns how many wants stay open without a provider.
func (p *plan) serve() map[api.FunctionName]int {
	open := map[api.FunctionName]int{}
	wants := slices.Clone(p.Wants)
	slices.SortFunc(wants, func(a, b Want) int { return cmp.Compare(a.ID, b.ID) })
	for _, w := range wants {
		if !p.satisfy(w) {
			open[w.Function]++
		}
	}
	return open
}

// satisfy serves one want in the best way that is possible now:
//
//  1. its provider is awake already
//  2. its sleeper has its claim, or needs none first
//  3. a requester has landed elsewhere: another sleeper there
//  4. else, while another requester may land better, it waits for that
//  5. else a new provider there, or on a node of our own where it was placed
//  6. else it waits for a requester
func (p *plan) satisfy(w Want) bool {
	v := p.provider(w.Provider)
	if v == nil {
		v = p.any(w.Function)
	}
	if v != nil && !v.Leaving && !v.Asleep && !v.Busy && !v.Unheard { // 1
		p.do(Action{Kind: Done, Function: w.Function, Want: w.ID, Provider: v.ID, Reason: "it is up"})
		return true
	}
	if v != nil && !v.Leaving && v.Asleep && !v.Busy && p.inTheWay(v, v.Node, v.Devices) == nil { // 2
		if r := p.claimFor(w.Function, v.Node, v.Devices); r != nil {
			p.wake(w, v, r, "its requester "+string(r.ID)+" claims the devices that it sleeps on")
			return true
		}
		switch {
		case p.Nodes[v.Node].Owned:
			p.wake(w, v, nil, "the GPUs of "+v.Node+" are ours: the claim follows")
			return true
		case p.spare(v.Node, v.Devices) && p.unclaimed() < len(v.Devices) && !p.landed(w.Function):
			p.wake(w, v, nil, "its devices are claimed by a requester that is going, and nothing else is free: the claim follows")
			return true
		}
	}
	for _, r := range p.rs { // 3
		if r.Function != w.Function || !r.free() {
			continue
		}
		if s := p.sleeper(w.Function, r); s != nil {
			p.wake(w, s, r, "its requester "+string(r.ID)+" landed on its devices")
			return true
		}
	}
	if p.again(w, v) { // 4
		return false
	}
	if w.Provider == "" && p.Nodes[w.Node].Owned && len(w.Devices) > 0 { // 5
		if p.inTheWay(nil, w.Node, w.Devices) != nil {
			return false
		}
		p.make(w, p.claimFor(w.Function, w.Node, w.Devices), w.Node, w.Devices)
		return true
	}
	for _, r := range p.rs {
		if r.Function == w.Function && r.free() && p.inTheWay(nil, r.Node, r.Devices) == nil {
			p.make(w, r, r.Node, r.Devices)
			return true
		}
	}
	return false // 6
}

// again reports whether a want waits for one more requester, which may land on the devices of the chosen sleeper.
func (p *plan) again(w Want, v *Provider) bool {
	if v == nil || v.Leaving || !v.Asleep || v.Busy || p.Nodes[v.Node].Owned || p.inTheWay(v, v.Node, v.Devices) != nil {
		return false
	}
	coming := slices.ContainsFunc(p.rs, func(r *Requester) bool {
		return r.Function == w.Function && !r.Leaving && r.Bound == "" && len(r.Devices) == 0
	})
	if !coming && !p.spare(v.Node, v.Devices) && p.unclaimed() < len(v.Devices) {
		return false
	}
	var beside []*Requester
	for _, r := range p.rs {
		if r.Node == v.Node && overlap(r.Devices, v.Devices) && !r.Leaving {
			return false
		}
		if r.Function == w.Function && r.free() {
			beside = append(beside, r)
		}
	}
	end := w.Since.Add(patience)
	if len(beside) == 0 || len(beside) > tries || !p.Now.Before(end) {
		return false
	}
	p.at(end)
	for _, r := range beside {
		r.held = true
	}
	return true
}

// any returns a sleeper that no want has chosen and that lacks only its claim.
func (p *plan) any(f api.FunctionName) *Provider {
	for _, v := range p.ps {
		if v.Function == f && v.Asleep && !v.Busy && !v.Leaving && !v.Unheard && !p.Nodes[v.Node].Owned && p.inTheWay(v, v.Node, v.Devices) == nil &&
			!slices.ContainsFunc(p.Wants, func(w Want) bool { return w.Provider == v.ID }) {
			return v
		}
	}
	return nil
}

func (p *plan) sleeper(f api.FunctionName, r *Requester) *Provider {
	for _, v := range p.ps {
		if v.Function == f && v.Asleep && !v.Busy && !v.Leaving && v.Node == r.Node && equal(v.Devices, r.Devices) &&
			p.inTheWay(v, v.Node, v.Devices) == nil {
			return v
		}
	}
	return nil
}

func (p *plan) landed(f api.FunctionName) bool {
	return slices.ContainsFunc(p.rs, func(r *Requester) bool { return r.Function == f && r.free() })
}

// spare reports whether devices are claimed only by requesters without a provider.
func (p *plan) spare(node string, devices []api.DeviceID) bool {
	for _, d := range devices {
		held := false
		for _, r := range p.rs {
			if r.Node == node && slices.Contains(r.Devices, d) {
				if r.Bound != "" || !r.Leaving && !r.Spent {
					return false
				}
				held = true
			}
		}
		if !held {
			return false
		}
	}
	return true
}

func (p *plan) unclaimed() int {
	n := 0
	for _, node := range p.Nodes {
		n += max(0, node.Free)
	}
	return n
}

func (p *plan) wake(w Want, v *Provider, r *Requester, reason string) {
	path := autoscaler.PathHot
	if !v.Process {
		path = autoscaler.PathWarm
	}
	a := Action{Kind: Wake, Function: w.Function, Want: w.ID, Provider: v.ID, Node: v.Node, Devices: v.Devices, Path: path, Reason: reason}
	v.Asleep, v.Busy, v.Since = false, true, p.Now
	if r != nil {
		a.Requester = r.ID
		r.Bound, v.Bound, r.Spent = v.ID, r.ID, false
	}
	p.do(a)
}

// make ends the least recently used sleepers that leave too little memory first.
func (p *plan) make(w Want, r *Requester, node string, devices []api.DeviceID) {
	a := Action{Kind: Make, Function: w.Function, Want: w.ID, Node: node, Devices: devices, Path: autoscaler.PathCold,
		Reason: fmt.Sprintf("no instance of the function sleeps on %v of %s", devices, node)}
	for _, d := range devices {
		a.Delete = append(a.Delete, p.crowd(d, node, w.Need)...)
	}
	if len(a.Delete) > 0 {
		a.Path = autoscaler.PathColdFreed
		a.Reason += fmt.Sprintf("; %v end for it", a.Delete)
	}
	made := &Provider{Function: w.Function, Node: node, Devices: devices, Busy: true, Since: p.Now}
	if r != nil {
		a.Requester = r.ID
		made.Bound = r.ID
		r.Bound, r.Spent = "new", false
		for _, o := range p.rs { // it waits for another's claim to go
			if o != r && o.Leaving && overlap(o.Devices, devices) {
				a.Path = autoscaler.PathColdFreed
			}
		}
	}
	p.ps = append(p.ps, made)
	p.do(a)
}

// crowd lists the sleepers that have to end for need bytes.
func (p *plan) crowd(d api.DeviceID, node string, need api.Bytes) []api.InstanceID {
	var on []*Provider
	var held api.Bytes
	for _, v := range p.ps { // the last used first
		if v.Asleep && !v.Leaving && !v.Busy && v.Node == node && slices.Contains(v.Devices, d) {
			on = append(on, v)
			held += v.Residue
		}
	}
	var out []api.InstanceID
	room := p.Nodes[node].Memory - need
	for k := len(on) - 1; k >= 0; k-- {
		if room < 0 || p.Nodes[node].Memory <= 0 || held <= room {
			break
		}
		held -= on[k].Residue
		on[k].Leaving = true
		out = append(out, on[k].ID)
	}
	return out
}
