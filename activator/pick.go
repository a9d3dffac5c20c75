package activator

import (
	"cmp"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/activator/route/prefix"
	"github.com/rouse-dev/rouse/api"
)

// These headers name the conversation or user with whose instance a request should stay, before what its body says. The second is what
// OpenCode sends, and Fireworks documents.
const (
	headerSession  = "X-Session-Id"
	headerAffinity = "X-Session-Affinity"
)

// looksAt finds out what r wants of an instance, where f has a choice: what its prompt begins with is not worth
// a look where there is one instance. It is called without the lock: hashing a long prompt takes its time.
func (f *function) looksAt(r *request) {
	if r.want != nil {
		return
	}
	f.mu.Lock()
	many := f.set.Many()
	f.mu.Unlock()
	if !many {
		return
	}
	p, tenant := &r.Prompt, r.peer.Tenant()
	want := r.wants()
	r.want = &want
	if r.prompts {
		r.want.Prefix = prefix.Of(prefix.SaltOf(tenant, string(r.adapter), string(p.Salt)), p.System, p.Tools, p.Messages)
	}
	if session := cmp.Or(r.in.Header.Get(headerSession), r.in.Header.Get(headerAffinity), string(p.Session)); session != "" {
		r.want.Session = uint64(prefix.SaltOf(tenant, session))
	}
}

// countPrompt takes in how many tokens a prompt had that f has looked at, as its model server says; 0: it does not.
func (f *function) countPrompt(r *request, tokens api.Tokens) {
	if r.want == nil || r.want.Prefix.Len() == 0 || tokens == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set.Count(len(r.Prompt.System)+len(r.Prompt.Tools)+len(r.Prompt.Messages), tokens)
}

// wants is what r wants of an instance, as far as anybody has looked.
func (r *request) wants() route.Want {
	if r.want != nil {
		return *r.want
	}
	want := route.Want{Adapter: r.adapter}
	if r.via != nil {
		want.Only = r.via.Allows
	}
	return want
}

// maxPicks is how many choices are kept.
const maxPicks = 4096

// picks are the last choices of instances, for people who ask why. There is nothing of a request in them but its id.
type picks struct {
	mu   sync.Mutex // guards all below
	ring []api.Pick
	next int
}

// add keeps the choice of s for c.
func (p *picks) add(c *call, s *slot) {
	one := api.Pick{Request: c.req.id, Function: c.f.name, Instance: s.instance.ID, Activator: c.a.cfg.Name, At: time.Now(), After: c.sent.last, Choice: s.why}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ring) < maxPicks {
		p.ring = append(p.ring, one)
		return
	}
	p.ring[p.next] = one
	p.next = (p.next + 1) % maxPicks
}

// Picks says which instances were chosen for a request, in order, and why: as far as that was among the last choices. A request has
// several where an instance gave it back, or where clients give several the same id.
func (a *Activator) Picks(request string) []api.Pick {
	p, found := &a.picks, []api.Pick{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.ring {
		if one := p.ring[(p.next+n)%len(p.ring)]; one.Request == request {
			found = append(found, one)
		}
	}
	return found
}
