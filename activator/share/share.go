// Package share makes the activators of one cluster count their clients' use together: each tells each other its
// use of accounts ([control.Use]) and of clients ([control.ClientUse]), as differences.
//
//  1. A difference is added to what the others do not know ([Share.Used], [Share.Served]).
//  2. Within [Every], or at once ([Share.Ask]), it is sealed into a numbered part, sent with all unacknowledged
//     ones. The answer carries the use there.
//  3. The receiver applies only parts with a higher number than the last.
//
// A new activator asks for earlier use. Parts for unreachable ones are kept, within bounds. Limits are exact while
// activators reach each other: each may use an equal part of the rest before the others know.
//
// Front doors share too. While one can't be reached, each admits only its part ([Share.Among]). A front door can
// give back only use that it has reported.
package share

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

const (
	// Every is how long a difference may wait.
	Every = 100 * time.Millisecond
	// AskFor bounds a request's wait; callFor, until earlier use is known.
	AskFor     = 250 * time.Millisecond
	callFor    = 2 * time.Second
	retryAfter = time.Second
	// How long requests at an unreachable front door count.
	runsFor = time.Minute
)

const (
	// Unacknowledged. A peer that sends so many may have more.
	mostParts    = 8
	mostAccounts = 100_000 // of one peer's reports
	// In a part; of more, only the turns here count.
	mostClients = 10_000
	// MaxMessage is in bytes.
	MaxMessage = 16 << 20
)

// Accounts hold the use elsewhere. The methods do not block.
type Accounts interface {
	// late: a part may have been refilled since.
	Learn(account string, u control.Use, late bool)
	All() map[string]control.Use
	Budgets() map[string]control.Budget
	LearnBudget(account string, b control.Budget)
}

// Queues hold the cost of requests elsewhere. The method does not block.
type Queues interface {
	ServedElsewhere(u control.ClientUse)
}

// Caller is a *control.Client.
type Caller interface {
	Call(ctx context.Context, method string, e api.Endpoint, path string, in, out any, most int64) error
}

// Activator is another activator of the cluster, or front door.
type Activator struct {
	Name     string
	Endpoint api.Endpoint
}

// Share is one activator's part, safe for concurrent use.
type Share struct {
	name, run string
	doors     bool
	caller    Caller
	accounts  Accounts
	queues    Queues
	log       *slog.Logger
	alone     atomic.Bool

	// Held while a message is applied: after Take all earlier ones count. It is locked before mu.
	taking sync.Mutex

	mu    sync.Mutex // guards the fields below and the peers; not held while accounts, queues or caller are called
	ctx   context.Context
	ended bool
	loops sync.WaitGroup
	peers map[string]*peer
	// Counts messages that came while all front doors were reached.
	period uint64
	// By account: the most that one peer knows.
	before map[string]control.Use
	// Requests here, by account.
	running map[string]float64
}

// New returns the share of a process, alone until [Share.Set]; doors: of front doors.
func New(name, run string, doors bool, caller Caller, log *slog.Logger) *Share {
	s := &Share{name: name, run: run, doors: doors, caller: caller, log: log, period: 1, peers: map[string]*peer{}, before: map[string]control.Use{}, running: map[string]float64{}}
	s.alone.Store(true)
	return s
}

// Tell is called before Run and Take.
func (s *Share) Tell(a Accounts, q Queues) { s.accounts, s.queues = a, q }

// Run exchanges use until ctx ends. It runs once.
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

// The caller holds mu.
func (s *Share) start(p *peer) {
	if s.ctx == nil || s.ended {
		return
	}
	ctx, stop := context.WithCancel(s.ctx)
	p.stop = stop
	s.loops.Go(func() { s.loop(ctx, p) })
}

// Set replaces the set of other activators.
func (s *Share) Set(others []Activator) {
	var gone lessons
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
			p.ran(&gone)
			delete(s.peers, name)
		}
	}
	s.alone.Store(len(s.peers) == 0)
	s.mu.Unlock()
	s.learn(gone)
}

func (s *Share) learn(all lessons) {
	for _, l := range all {
		s.accounts.Learn(l.account, l.use, l.late)
	}
}

// Used records an account's use here.
func (s *Share) Used(account string, u control.Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[account] += u.Running; s.running[account] == 0 {
		delete(s.running, account)
	}
	for _, p := range s.peers {
		p.accounts[account] = p.accounts[account].Plus(u)
		s.soon(p, Every)
	}
}

// Served records the cost of a client's requests here.
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

// Among is as in package keys' Others. apart changes each time that this one has reached all others.
func (s *Share) Among(account string) (n int, unknown control.Use, known bool, apart uint64) {
	if s.alone.Load() {
		return 1, control.Use{}, true, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, p := range s.peers {
		if s.doors || !now.Before(p.away) {
			unknown = unknown.Max(p.unknown(account))
		}
		known = known || !p.meets
		if p.apart {
			s.soon(p, Every) // it says when it no longer is
		}
		if p.apart || s.lacks(p) {
			apart = s.period
		}
	}
	return len(s.peers) + 1, unknown, known, apart
}

// Ask is as in package keys' Others, within [AskFor]. It does not wait for unreachable peers; false: a front door
// is apart.
func (s *Share) Ask(ctx context.Context) bool {
	s.mu.Lock()
	now, most := time.Now(), callFor
	asked := map[*peer]*round{}
	for _, p := range s.peers {
		if !now.Before(p.away) {
			asked[p] = s.round(p)
		}
		if !p.meets {
			most = AskFor
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for p, r := range asked {
		select {
		case <-r.done:
		case <-ctx.Done():
			s.mu.Lock()
			if p.next == r || p.asking == r {
				p.lost = true
			}
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if s.doors && (asked[p] == nil || !asked[p].answered || p.lost || p.apart) {
			return false
		}
	}
	return true
}

// Serve serves [control.PathUsage] for a sender that has proved to be one of those named; nil: any.
func (s *Share) Serve(w http.ResponseWriter, r *http.Request, proven map[string]bool) {
	var m control.UsageMessage
	var err error
	known := proven == nil
	if known || len(proven) > 0 { // others' bodies are not read
		err = json.NewDecoder(http.MaxBytesReader(w, r.Body, MaxMessage)).Decode(&m)
		known = known || proven[m.From]
	}
	switch {
	case err != nil || known && (m.From == "" || m.Run == ""):
		api.WriteError(w, api.BadRequest("", "the body is no report of use, with its sender and its process: %v", err))
	case !known:
		api.WriteError(w, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the activator %q is not known here by this token", m.From))
	default:
		api.WriteJSON(w, http.StatusOK, s.Take(m))
	}
}

// Take applies another activator's message, and answers with the use here.
func (s *Share) Take(m control.UsageMessage) control.UsageMessage {
	s.receive(m)
	s.mu.Lock()
	p := s.peers[m.From]
	if p == nil { // not reported by Kubernetes yet
		s.mu.Unlock()
		return control.UsageMessage{From: s.name, Run: s.run}
	}
	answer := s.message(p)
	answer.Before = p.number
	running := maps.Clone(s.running)
	s.mu.Unlock()
	switch {
	case m.Meet && s.doors && !p.again: // the parts have everything
		answer.All, answer.Before = map[string]control.Use{}, 0
	case m.Meet:
		answer.All, answer.Budgets = s.accounts.All(), s.accounts.Budgets()
		for account, n := range running {
			u := answer.All[account]
			u.Running = n
			answer.All[account] = u
		}
	}
	return answer
}

func (s *Share) receive(m control.UsageMessage) {
	s.taking.Lock()
	defer s.taking.Unlock()
	s.mu.Lock()
	p := s.peers[m.From]
	if p == nil {
		s.mu.Unlock()
		return
	}
	var learned lessons
	var budgets map[string]control.Budget
	if p.run != m.Run {
		if p.run != "" {
			p.ran(&learned)
			p.forget() // it asks for everything
			p.again = true
		}
		p.run, p.taken = m.Run, 0
	}
	if m.TakenOf == s.run {
		p.acknowledged(m.Taken)
	}
	if p.meets && m.All != nil {
		p.meets, p.taken, budgets = false, m.Before, m.Budgets
		for account, u := range m.All {
			u = u.Max(control.Use{})
			p.reported[account] = u
			known := s.before[account]
			s.before[account] = known.Max(u)
			more := s.before[account].Minus(known)
			more.Running = u.Running
			learned = append(learned, lesson{account, more, s.doors}) // it has admitted its part before it met the others
		}
	}
	if m.Meet { // it takes no parts yet
		s.soon(p, Every)
	}
	if p.lost, p.apart, p.heard = m.Meet || max(len(m.Parts), len(p.sent)) >= mostParts, s.doors && m.Apart, time.Now(); !s.apartBut(nil) {
		s.period++
	}
	var clients []control.ClientUse
	if !p.meets { // else All has not all of its parts: it repeats them
		clients = p.take(m.Parts, &learned)
	}
	s.mu.Unlock()
	for account, b := range budgets { // before the parts that follow
		s.accounts.LearnBudget(account, b)
	}
	s.learn(learned)
	for _, c := range clients {
		s.queues.ServedElsewhere(c)
	}
}
