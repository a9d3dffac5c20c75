package share

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

// peer is another activator.
type peer struct {
	Activator
	stop   func()
	bell   bell.Bell // rung for next
	next   *round    // nil: none is due
	asking *round    // nil: none has begun
	armed  bool      // a timer is set
	away   time.Time // not asked until then
	fault  bool
	lost   bool // not heard since it did not answer
	heard  time.Time
	apart  bool // from another one

	run   string // its process; empty: unknown
	again bool   // an earlier process knew use here
	meets bool   // earlier use is to come
	taken uint64 // last part from it
	// What it has reported and not given back, by account.
	reported map[string]control.Use

	// Use here that was not sent.
	accounts map[string]control.Use
	clients  map[control.ClientUse]float64 // cost by client; Cost is 0 in the key
	late     bool                          // not sent when due, or apart
	sent     []control.UsagePart           // not acknowledged
	number   uint64                        // last sealed part
}

func newPeer(a Activator) *peer {
	p := &peer{Activator: a, stop: func() {}, bell: bell.New(), meets: true, reported: map[string]control.Use{}}
	p.forget()
	return p
}

func (p *peer) forget() {
	p.accounts, p.clients = map[string]control.Use{}, map[control.ClientUse]float64{}
	p.sent = nil
}

// message seals the pending use, and returns all unacknowledged parts.
func (p *peer) message() control.UsageMessage {
	if len(p.accounts)+len(p.clients) > 0 && len(p.sent) < mostParts {
		p.number++
		part := control.UsagePart{Number: p.number, Late: p.late, Accounts: p.accounts}
		for c, cost := range p.clients {
			c.Cost = cost
			part.Clients = append(part.Clients, c)
		}
		p.sent = append(p.sent, part)
		p.accounts, p.clients, p.late = map[string]control.Use{}, map[control.ClientUse]float64{}, false
	}
	return control.UsageMessage{Taken: p.taken, TakenOf: p.run, Parts: slices.Clone(p.sent)}
}

// What was given back may be known already.
func (p *peer) unknown(account string) control.Use {
	sum := p.accounts[account].Max(control.Use{})
	for _, part := range p.sent {
		sum = sum.Plus(part.Accounts[account].Max(control.Use{}))
	}
	return sum
}

func (p *peer) acknowledged(number uint64) {
	for len(p.sent) > 0 && p.sent[0].Number <= number {
		p.sent = p.sent[1:]
	}
}

type lesson struct {
	account string
	use     control.Use
	late    bool
}

type lessons []lesson

// take appends to learned, and returns the cost of clients' requests.
func (p *peer) take(parts []control.UsagePart, learned *lessons) (clients []control.ClientUse) {
	slices.SortFunc(parts, func(a, b control.UsagePart) int { return cmp.Compare(a.Number, b.Number) })
	if len(p.reported) > mostAccounts {
		maps.DeleteFunc(p.reported, func(_ string, u control.Use) bool { return u.Running == 0 })
	}
	for _, part := range parts {
		if part.Number <= p.taken {
			continue
		}
		p.taken = part.Number
		for account, u := range part.Accounts {
			was := p.reported[account]
			p.reported[account] = was.Plus(u).Max(control.Use{})
			*learned = append(*learned, lesson{account, p.reported[account].Minus(was), part.Late})
		}
		clients = append(clients, part.Clients...)
	}
	return clients
}

func (p *peer) ran(learned *lessons) {
	for account, u := range p.reported {
		*learned = append(*learned, lesson{account: account, use: control.Use{Running: -u.Running}})
	}
	p.reported = map[string]control.Use{}
}
