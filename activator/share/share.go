// Package share has the activators of one cluster count together what their clients use, so that a limit is one limit and a
// client has one turn, however many activators its requests come through.
//
// Each activator tells each other one what was used through it, as differences: of accounts ([control.Use]), which have
// limits, and of clients of functions ([control.ClientUse]), which have turns. The life of a difference:
//
//  1. It is added to what the other activators do not know yet ([Share.Used], [Share.Served]).
//  2. Within [Every], or at once where a limit is nearly used up ([Share.Ask]), it is sealed into a part with a number,
//     which goes to the other activator with all parts that it has not acknowledged. The answer brings what was used there.
//  3. The other one takes parts whose number is higher than the last that it took. So nothing counts twice, and a
//     message that was lost is repeated by the next one.
//
// An activator that has just begun asks the others what is used already. One that can't be reached is not waited for: limits
// are then kept by what is known. Its parts are kept, within bounds, until it is back or Kubernetes says that it is gone.
//
// Limits are exact while the activators reach each other: of what is left, each may give away one part of as many as there are
// activators before the others know of it; who needs more asks first (package keys).
package share

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Times between activators.
const (
	// Every is how long a difference may wait for others to be told with it.
	Every = 100 * time.Millisecond
	// AskFor bounds how long a request waits for another activator's answer.
	AskFor = 250 * time.Millisecond
	// callFor bounds one exchange, and retryAfter is when one that failed is tried again: nobody asks until then.
	callFor    = 2 * time.Second
	retryAfter = time.Second
)

// Bounds of what is kept and sent.
const (
	// mostParts is how many parts wait for an acknowledgement; more differences are added up.
	mostParts = 8
	// mostClients is how many clients of functions are in a part; the turns of more are those that this activator knows.
	mostClients = 10_000
	// MaxMessage bounds a message, in bytes.
	MaxMessage = 16 << 20
)

// Accounts take what was used elsewhere. The methods do not block.
type Accounts interface {
	// Learn takes what another activator let an account use.
	Learn(account string, u control.Use)
	// All is what the accounts with limits have used, as far as it is known here, of requests and tokens.
	All() map[string]control.Use
}

// Queues take what clients' requests have cost a function elsewhere. The method does not block.
type Queues interface {
	ServedElsewhere(u control.ClientUse)
}

// Caller calls another activator; a *control.Client is one.
type Caller interface {
	Call(ctx context.Context, method string, e api.Endpoint, path string, in, out any, most int64) error
}

// Activator is another activator of the cluster.
type Activator struct {
	Name     string // its pod's
	Endpoint api.Endpoint
}

// Share is one activator's part. Its methods are safe for many goroutines. The zero value is not usable: see [New].
type Share struct {
	name, run string
	caller    Caller
	accounts  Accounts
	queues    Queues
	log       *slog.Logger
	alone     atomic.Bool // there are no others

	// taking is held while a message is taken: when one returns, all that came before it counts. It is locked before mu.
	taking sync.Mutex

	mu    sync.Mutex // guards what follows, and the peers; never held during a call of a method of accounts, queues or caller
	ctx   context.Context
	ended bool
	loops sync.WaitGroup
	peers map[string]*peer
	met   bool // one of the others has said what was used before
	// before is what the others have said that was used before, by account: the most that one of them knows.
	before map[string]control.Use
	// running is what runs here, by account.
	running map[string]float64
}

// New makes the share of an activator, which is alone until [Share.Set]. run names its process.
func New(name, run string, caller Caller, log *slog.Logger) *Share {
	s := &Share{name: name, run: run, caller: caller, log: log, peers: map[string]*peer{}, before: map[string]control.Use{}, running: map[string]float64{}}
	s.alone.Store(true)
	return s
}

// Tell says who takes what others tell. It is called once, before Run and Take.
func (s *Share) Tell(a Accounts, q Queues) { s.accounts, s.queues = a, q }

// Run tells the others until ctx ends; it returns nil then. It runs once.
func (s *Share) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	for _, p := range s.peers {
		s.start(p)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.loops.Wait()
	return nil
}

// start runs p's loop, if that can be yet. The caller holds mu.
func (s *Share) start(p *peer) {
	if s.ctx == nil || s.ended {
		return
	}
	ctx, stop := context.WithCancel(s.ctx)
	p.stop = stop
	s.loops.Go(func() { s.loop(ctx, p) })
}

// Set says which other activators there are.
func (s *Share) Set(others []Activator) {
	gone := map[string]control.Use{}
	s.mu.Lock()
	keep := map[string]bool{}
	for _, o := range others {
		keep[o.Name] = true
		p := s.peers[o.Name]
		if p == nil {
			p = newPeer(o)
			s.peers[o.Name] = p
			s.start(p)
			s.round(p)
			s.log.Debug("another activator counts for the same clients", "activator", o.Name)
		}
		p.Endpoint = o.Endpoint
	}
	for name, p := range s.peers {
		if !keep[name] {
			p.stop()
			if p.next != nil {
				close(p.next.done)
			}
			p.ran(gone)
			delete(s.peers, name)
		}
	}
	s.alone.Store(len(s.peers) == 0)
	s.mu.Unlock()
	s.learn(gone)
}

func (s *Share) learn(all map[string]control.Use) {
	for account, u := range all {
		s.accounts.Learn(account, u)
	}
}

// Used says that an account has used something here.
func (s *Share) Used(account string, u control.Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[account] += u.Running; s.running[account] == 0 {
		delete(s.running, account)
	}
	for _, p := range s.peers {
		p.accounts[account] = p.accounts[account].Plus(u)
		p.owed[account] = p.owed[account].Plus(u)
		s.soon(p, Every)
	}
}

// Served says that a client's requests have cost a function something here.
func (s *Share) Served(u control.ClientUse) {
	if s.alone.Load() || u.Cost == 0 {
		return
	}
	cost := u.Cost
	u.Cost = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if _, has := p.clients[u]; has || len(p.clients) < mostClients {
			p.clients[u] += cost
		}
		s.soon(p, Every)
	}
}

// Among is how many activators count for an account, this one too, and how much of what it has used here at least one that can
// be reached does not know. known is false before any of the others has said what was used before this one began.
func (s *Share) Among(account string) (n int, unknown control.Use, known bool) {
	if s.alone.Load() {
		return 1, control.Use{}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, p := range s.peers {
		if !now.Before(p.away) {
			unknown = unknown.Max(p.owed[account])
		}
	}
	return len(s.peers) + 1, unknown, s.met || len(s.peers) == 0
}

// Ask returns when the others know what was used here until now and have told what was used there. It waits for none that
// can't be reached, for [AskFor] at most, and not longer than ctx.
func (s *Share) Ask(ctx context.Context) {
	s.mu.Lock()
	now := time.Now()
	var asked []*round
	for _, p := range s.peers {
		if !now.Before(p.away) {
			asked = append(asked, s.round(p))
		}
	}
	s.mu.Unlock()
	if len(asked) == 0 {
		return
	}
	enough := time.NewTimer(AskFor)
	defer enough.Stop()
	for _, r := range asked {
		select {
		case <-r.done:
		case <-enough.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Take takes the message of another activator. The answer has what was used here.
func (s *Share) Take(m control.UsageMessage) control.UsageMessage {
	s.receive(m)
	s.mu.Lock()
	p := s.peers[m.From]
	if p == nil { // Kubernetes has not said yet that it is there
		s.mu.Unlock()
		return control.UsageMessage{From: s.name, Run: s.run}
	}
	if m.Meet {
		p.forget() // All has it
	}
	answer := p.message()
	answer.From, answer.Run, answer.Before = s.name, s.run, p.number
	running := maps.Clone(s.running)
	s.mu.Unlock()
	if m.Meet {
		answer.All = s.accounts.All()
		for account, n := range running {
			u := answer.All[account]
			u.Running = n
			answer.All[account] = u
		}
	}
	return answer
}

// receive takes what another activator says.
func (s *Share) receive(m control.UsageMessage) {
	s.taking.Lock()
	defer s.taking.Unlock()
	s.mu.Lock()
	p := s.peers[m.From]
	if p == nil {
		s.mu.Unlock()
		return
	}
	learned := map[string]control.Use{}
	if p.run != m.Run {
		if p.run != "" {
			p.ran(learned)
			p.forget() // it asks for all
		}
		p.run, p.taken = m.Run, 0
	}
	if m.TakenOf == s.run {
		p.acknowledged(m.Taken)
	}
	if p.meets && m.All != nil {
		p.meets, s.met, p.taken = false, true, m.Before
		for account, u := range m.All {
			p.running[account] = u.Running
			known := s.before[account]
			s.before[account] = known.Max(u)
			more := s.before[account].Minus(known)
			more.Running = u.Running
			learned[account] = learned[account].Plus(more)
		}
	}
	var clients []control.ClientUse
	if !p.meets { // before, what it says is not what All will have: it repeats that
		clients = p.take(m.Parts, learned)
	}
	s.mu.Unlock()
	s.learn(learned)
	for _, c := range clients {
		s.queues.ServedElsewhere(c)
	}
}
