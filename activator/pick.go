package activator

import (
	"cmp"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/activator/route/prefix"
	"github.com/rouse-dev/rouse/api"
)

// These headers name the conversation or user whose instance a request should return to, and take precedence over the
// body. OpenCode sends the second, and Fireworks documents it.
const (
	headerSession  = "X-Session-Id"
	headerAffinity = "X-Session-Affinity"
)

// looksAt determines what r wants of an instance. It skips the prefix of the prompt if there is only one instance. It
// is called without the lock: hashing a long prompt takes time.
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

// countPrompt records the model server's count of the tokens of a prompt that looksAt has hashed; 0: unknown.
func (f *function) countPrompt(r *request, tokens api.Tokens) {
	if r.want == nil || r.want.Prefix.Len() == 0 || tokens == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set.Count(len(r.Prompt.System)+len(r.Prompt.Tools)+len(r.Prompt.Messages), tokens)
}

// wants returns what r wants of an instance, as far as looksAt has determined it.
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

const maxPicks = 4096

// picks are the last choices of instances, for operators who ask why. The request's id is all that they hold of a
// request.
type picks struct {
	mu   sync.Mutex // guards all below
	ring []api.Pick
	next int
}

// add records that c got s.
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

// Picks returns the instances that were chosen for a request, in order, with reasons, as far as the last choices are
// kept. A request has several picks if an instance gave it back, or if clients reuse its id.
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
