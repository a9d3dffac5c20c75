package share

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

// peer is what this activator knows of another one.
type peer struct {
	Activator
	stop  func()
	bell  bell.Bell // rung for next
	next  *round    // nil: none is due
	armed bool      // a timer is set that makes one due
	away  time.Time // until when it is not asked: it could not be reached
	fault bool      // the last exchange failed

	run   string // its process; empty: it has said nothing yet
	meets bool   // it is to say what was used before
	taken uint64 // the number of its last part that was taken
	// running is what runs there, by account: it ends with the activator.
	running map[string]float64

	// What was used here and not sent.
	accounts map[string]control.Use
	clients  map[control.ClientUse]float64 // by what is used; Cost is 0 in the key
	sent     []control.UsagePart           // and not acknowledged
	number   uint64                        // of the last part that was sealed
	owed     map[string]control.Use        // what it may not know, sent or not
}

func newPeer(a Activator) *peer {
	p := &peer{Activator: a, stop: func() {}, bell: bell.New(), meets: true, running: map[string]float64{}}
	p.forget()
	return p
}

// forget drops what it has not been told.
func (p *peer) forget() {
	p.accounts, p.clients, p.owed = map[string]control.Use{}, map[control.ClientUse]float64{}, map[string]control.Use{}
	p.sent = nil
}

// message seals what was used and has all that it has not acknowledged.
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

// acknowledged takes in that it has taken all parts up to a number.
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

// take takes parts that are new: it adds to what accounts have learned, and returns what clients' requests have cost.
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

// ran adds to what accounts learn that nothing runs there any more.
func (p *peer) ran(learned map[string]control.Use) {
	for account, n := range p.running {
		learned[account] = learned[account].Minus(control.Use{Running: n})
	}
	p.running = map[string]float64{}
}
