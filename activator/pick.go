package activator

import (
	"cmp"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

// These headers name the conversation or user whose instance a request should return to, and take precedence over the
// body. OpenCode sends the second, and Fireworks documents it.
const (
	headerSession  = "X-Session-Id"
	headerAffinity = "X-Session-Affinity"
)

// preferInstances tells the queue which instances are best for the request, unless there is only one: hashing a long
// prompt takes time.
func (c *call) preferInstances() {
	if c.preferred || !c.f.Several() {
		return
	}
	c.preferred = true
	p, tenant := &c.req.Prompt, c.req.peer.Tenant()
	if c.req.prompts {
		c.want.Prefix = route.ChainOf(route.SaltOf(tenant, string(c.req.adapter), string(p.Salt)), p.System, p.Tools, p.Messages)
	}
	if c.want.Prefix.Len() > 0 {
		c.want.Prompt = len(p.System) + len(p.Tools) + len(p.Messages)
	}
	if session := cmp.Or(c.req.in.Header.Get(headerSession), c.req.in.Header.Get(headerAffinity), string(p.Session)); session != "" {
		c.want.Session = uint64(route.SaltOf(tenant, session))
	}
}

const maxPicks = 4096

// picks are the last choices of instances, for operators who ask why. The request's id is all that they hold of a
// request.
type picks struct {
	mu   sync.Mutex // guards all below
	ring []api.Pick
	all  int // the number of choices so far
}

// add records that c got s.
func (p *picks) add(c *call, s *queue.Slot) {
	one := api.Pick{Request: c.req.id, Function: c.f.Name, Instance: s.Instance, Activator: c.a.cfg.Name, At: time.Now(), After: c.sent.last, Fallback: c.insteadOf, Choice: s.Choice}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ring) < maxPicks {
		p.ring = append(p.ring, one)
	}
	c.sent.pick = p.all % maxPicks
	p.ring[c.sent.pick] = one
	p.all++
}

// ended records what c used of the GPU time that instances held.
func (p *picks) ended(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := c.sent.pick; n < len(p.ring) && p.ring[n].Request == c.req.id {
		p.ring[n].GPUSeconds = c.want.GPUSeconds
	}
}

// Picks returns the instances that were chosen for a request, in order, with reasons, as far as the last choices are
// kept. A request has several picks if an instance gave it back, or if clients reuse its id.
func (a *Activator) Picks(request string) []api.Pick {
	p, found := &a.picks, []api.Pick{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.ring {
		if one := p.ring[(p.all+n)%len(p.ring)]; one.Request == request {
			found = append(found, one)
		}
	}
	return found
}
