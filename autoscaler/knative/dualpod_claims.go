package knative

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// claimless binds awake providers without a claim, and puts those to sleep whose claim landed elsewhere,
// or did not come.
func (p *plan) claimless() {
	for _, v := range p.ps {
		if v.ID == "" || v.Asleep || v.Leaving || v.Unheard || v.Bound != "" {
			continue
		}
		if r := p.claimFor(v.Function, v.Node, v.Devices); r != nil {
			r.Bound, v.Bound, r.Spent = v.ID, r.ID, false
			p.do(Action{Kind: Bind, Function: v.Function, Requester: r.ID, Provider: v.ID, Reason: "the claim has come"})
			continue
		}
		if v.Busy || p.Nodes[v.Node].Owned {
			continue
		}
		elsewhere := p.landed(v.Function)
		late := v.Since.Add(lateClaim)
		reason := ""
		switch {
		case elsewhere:
			reason = "its requester was given other devices"
		case !p.Now.Before(late):
			reason = fmt.Sprintf("no requester has claimed its devices for %s", lateClaim)
		default:
			p.at(late)
			continue
		}
		kind := Sleep
		if v.Stuck {
			kind, reason = Delete, reason+", and it could not be put to sleep"
			v.Leaving = true
		}
		v.Busy = true
		p.do(Action{Kind: kind, Function: v.Function, Provider: v.ID, Reason: reason})
	}
}

// claims adjusts the number of requesters: one for each awake provider, and one for each open want.
func (p *plan) claims(open map[api.FunctionName]int) {
	need, have := maps.Clone(open), map[api.FunctionName]int{}
	for _, v := range p.ps {
		if !v.Asleep && !v.Leaving && (!v.Unheard || v.Bound != "") {
			need[v.Function]++
		}
	}
	for _, r := range p.rs {
		if !r.Leaving {
			have[r.Function]++
		}
	}
	for _, r := range p.rs {
		if r.held {
			need[r.Function]++
		}
	}
	for _, r := range p.rs {
		f := r.Function
		if r.Bound != "" || r.held {
			continue
		}
		if r.Leaving {
			if r.Released {
				continue
			}
			p.do(Action{Kind: Release, Function: f, Requester: r.ID, Reason: "it claims for nobody"})
			continue
		}
		if max(have[f], p.Claims[f]) <= need[f] {
			continue
		}
		idle := r.Since.Add(idleClaim)
		if !r.Spent && p.Now.Before(idle) {
			p.at(idle)
			continue
		}
		have[f]--
		p.Claims[f]--
		p.do(Action{Kind: Release, Function: f, Requester: r.ID, Reason: "it claims for nobody"})
	}
	for _, f := range slices.Sorted(maps.Keys(need)) {
		if n := need[f] - p.Claims[f]; n > 0 {
			p.do(Action{Kind: Claim, Function: f, N: n, Reason: fmt.Sprintf("%d are to be awake and %d claims are made", need[f], p.Claims[f])})
		}
	}
}
