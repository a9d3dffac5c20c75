package decide

import (
	"cmp"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// neighbours are the functions that may use the memory of a node: those with an instance there, and those that have none
// anywhere. The latter count on each node, divided by the number of nodes.
type neighbours struct {
	here   [][]*function // by node
	absent []*function
	// ordered are those of absent that were started once, by their expected next requests. weights[k] is of absent, where those before
	// ordered[k] keep their weights. They are nil until they are needed.
	ordered  []*function
	weights  []weights
	contests map[facts]contest // of absent, by kind of device
}

// neighbours returns the neighbours on all nodes. They are the same throughout a plan.
func (p *plan) neighbours() *neighbours {
	if p.near != nil {
		return p.near
	}
	near := &neighbours{here: make([][]*function, len(p.nodes)), contests: make(map[facts]contest)}
	p.near = near
	for _, f := range p.fs {
		if f.Undeclared {
			continue
		}
		absent := true
		for _, i := range f.instances {
			if i.lost {
				continue
			}
			absent = false
			if here := &near.here[i.node]; !slices.Contains(*here, f) {
				*here = append(*here, f)
			}
		}
		if absent {
			near.absent = append(near.absent, f)
		}
	}
	return near
}

// sumWeights sets ordered and weights.
func (p *plan) sumWeights(near *neighbours) {
	for _, f := range p.fs {
		f.until, _ = p.untilRequest(f)
	}
	var last weights
	for _, f := range near.absent {
		if f.Past.Starts > 0 {
			near.ordered = append(near.ordered, f)
		} else {
			last.add(f, false)
		}
	}
	slices.SortFunc(near.ordered, (*function).compareUntil)
	near.weights = make([]weights, len(near.ordered)+1)
	for k, f := range slices.Backward(near.ordered) {
		near.weights[k+1] = last
		last.add(f, false)
	}
	near.weights[0] = last
	var kept api.Bytes
	for k, f := range near.ordered {
		kept += f.weights()
		near.weights[k+1].asleep += kept
	}
}

// compareUntil orders f and g by their expected next requests.
func (f *function) compareUntil(g *function) int {
	return cmp.Or(cmp.Compare(f.until, g.until), cmp.Compare(f.Spec.Name, g.Spec.Name))
}

// weights returns the host memory that f takes with its weights, awake or asleep.
func (f *function) weights() api.Bytes {
	return max(f.Need.Host, f.Past.Residue(api.Level1).Host)
}

// weights is the host memory of functions some of which keep their weights asleep.
type weights struct {
	asleep    api.Bytes // of all; those that keep their weights take no more awake
	all, most api.Bytes // what the others take more by their wakes: all of them, and the largest one
}

func (w *weights) add(f *function, keeps bool) {
	if keeps {
		w.asleep += f.weights()
		return
	}
	asleep := f.Past.Residue(api.Level2).Host
	more := max(0, f.Need.Host-asleep)
	w.asleep, w.all, w.most = w.asleep+asleep, w.all+more, max(w.most, more)
}

// weightsOn returns the host memory on a node if f and those before it keep their weights.
func (p *plan) weightsOn(node int32, f *function) weights {
	n := p.neighbours()
	if n.weights == nil {
		p.sumWeights(n)
	}
	k, _ := slices.BinarySearchFunc(n.ordered, f, (*function).compareUntil)
	w, nodes := n.weights[k], api.Bytes(len(n.here))
	w.asleep, w.all = w.asleep/nodes, w.all/nodes
	for _, g := range n.here[node] {
		w.add(g, g.Past.Starts > 0 && g.compareUntil(f) <= 0)
	}
	return w
}

// contest is how scarce a device is.
type contest struct {
	asleep     api.Bytes // what all functions keep of it asleep
	awake, own api.Bytes // the largest need of one that fits, and what that one keeps asleep
}

// contestOf returns the contest for device d, which f has a part of.
func (p *plan) contestOf(d int32, f *function) contest {
	near := p.neighbours()
	add := func(c *contest, g *function) {
		if g.Need.Devices == 0 {
			return
		}
		keeps := g.Past.Residue(api.Level1).PerDevice
		c.asleep += keeps
		if need := p.claim(d, whole(g.Need)); g != f && need > c.awake && need <= p.facts[d].capacity {
			c.awake, c.own = need, keeps
		}
	}
	c, known := near.contests[p.facts[d]]
	if !known {
		for _, g := range near.absent {
			add(&c, g)
		}
		c.asleep /= api.Bytes(len(near.here))
		near.contests[p.facts[d]] = c
	}
	for _, g := range near.here[p.of[d]] {
		add(&c, g)
	}
	return c
}
