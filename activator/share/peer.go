package share

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

// peer is this activator's state of another one.
type peer struct {
	Activator
	stop  func()
	bell  bell.Bell // rung for next
	next  *round    // nil: none is due
	armed bool      // a timer for the next round is set
	away  time.Time // until then it is not asked: it could not be reached
	fault bool      // the last exchange failed

	run   string // identifies its process; empty: unknown yet
	meets bool   // it is to report earlier use
	taken uint64 // the number of the last part received from it
	// running is the number of requests that run there, by account: they end with the activator.
	running map[string]float64

	// Use here that was not sent yet.
	accounts map[string]control.Use
	clients  map[control.ClientUse]float64 // the cost by client; Cost is 0 in the key
	sent     []control.UsagePart           // sent and not acknowledged
	number   uint64                        // of the last sealed part
	owed     map[string]control.Use        // use that it may not know, sent or not
}

func newPeer(a Activator) *peer {
	p := &peer{Activator: a, stop: func() {}, bell: bell.New(), meets: true, running: map[string]float64{}}
	p.forget()
	return p
}

// forget drops the use that it has not been told.
func (p *peer) forget() {
	p.accounts, p.clients, p.owed = map[string]control.Use{}, map[control.ClientUse]float64{}, map[string]control.Use{}
	p.sent = nil
}

// message seals the pending use into a part, and returns all unacknowledged parts.
func (p *peer) message() control.UsageMessage {
	if len(p.accounts)+len(p.clients) > 0 && len(p.sent) < mostParts {
		p.number++
		part := control.UsagePart{Number: p.number, Accounts: p.accounts, Clients: make([]control.ClientUse, 0, len(p.clients))}
		for c, cost := range p.clients {
			c.Cost = cost
			part.Clients = append(part.Clients, c)
		}
		p.sent = append(p.sent, part)
		p.accounts, p.clients = map[string]control.Use{}, map[control.ClientUse]float64{}
	}
	return control.UsageMessage{Taken: p.taken, TakenOf: p.run, Parts: slices.Clone(p.sent)}
}

// acknowledged drops the parts up to the number that it has received.
func (p *peer) acknowledged(number uint64) {
	for len(p.sent) > 0 && p.sent[0].Number <= number {
		for account, u := range p.sent[0].Accounts {
			if p.owed[account] = p.owed[account].Minus(u); p.owed[account] == (control.Use{}) {
				delete(p.owed, account)
			}
		}
		p.sent = p.sent[1:]
	}
}

// take applies new parts: it adds to the use learned of accounts, and returns the cost of clients' requests.
func (p *peer) take(parts []control.UsagePart, learned map[string]control.Use) (clients []control.ClientUse) {
	slices.SortFunc(parts, func(a, b control.UsagePart) int { return cmp.Compare(a.Number, b.Number) })
	for _, part := range parts {
		if part.Number <= p.taken {
			continue
		}
		p.taken = part.Number
		for account, u := range part.Accounts {
			learned[account] = learned[account].Plus(u)
			if p.running[account] += u.Running; p.running[account] == 0 {
				delete(p.running, account)
			}
		}
		clients = append(clients, part.Clients...)
	}
	return clients
}

// ran removes the requests that ran there from the accounts.
func (p *peer) ran(learned map[string]control.Use) {
	for account, n := range p.running {
		learned[account] = learned[account].Minus(control.Use{Running: n})
	}
	p.running = map[string]float64{}
}
