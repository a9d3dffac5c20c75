// Package sched decides what each step of the engine computes: which tokens of which sequences go
// through the model together, and which blocks of KV memory hold their attention state. It has no
// clock, no goroutine and no randomness: the same calls give the same batches.
//
// There are no phases. A sequence is a list of tokens of which the first few are computed; a step
// moves it forward by some of the rest. A prompt that is longer than what a step has left is
// computed in chunks; a sequence that has one token left decodes.
//
// Several batches may be in flight: Config.Depth of them are scheduled before the results of the
// first are known. A token that is chosen in a batch in flight has its place already, a
// placeholder, and the next batch computes it: the worker, which chose it, puts it there. Whether a
// token ends its sequence is known one batch late, and what that batch computed after it is
// discarded. The number of tokens is known beforehand, so a sequence that ends by Max costs nothing
// extra.
//
// The life of one step:
//
//  1. The next waiting sequence has a better priority than the last running one, and no seat or no
//     memory: the last one is preempted, if that makes room.
//  2. Every running sequence that decodes gets its token, and what [Config].Draft guesses after it.
//     Where it needs one more block and none is free, the last running sequence gives all of its
//     blocks back and returns to the queue (preemption by recompute); "last" is by priority, then
//     by arrival.
//  3. The rest of the budget goes to prompts, running and waiting ones: see below for whose turn it
//     is. A waiting sequence needs a seat, and blocks for all tokens that it has; those that the
//     prefix cache has, or a sibling, are not computed again. Where the next one does not fit
//     no other overtakes it, and none is admitted in a step that preempted in 2.
//  4. The worker computes the [Batch], in the order of the calls of Schedule, and chooses tokens;
//     the caller hands them to Update.
//
// Whose turn it is: the best priority's; among equals the tenant's that got the fewest tokens
// (virtual time: each computed token counts once, prompt or answer, recomputed ones and those of
// the prefix cache do not; a tenant that comes with nothing waiting starts at the time of those
// that are served now, so that being idle earns nothing); of one tenant the sequence that came
// first. A tenant with a thousand sequences and one with a single one thus get every other turn. So
// that no sequence starves behind better priorities, each Config.Patience-th turn belongs to the
// sequence that has waited longest of all, and so does the next one after Config.Aging steps, for
// turns are rare where answers are long; it goes first from then on and is preempted last.
//
// The first of all running sequences is never preempted so that others grow, and [Scheduler.Add]
// refuses what the whole pool could not hold, so every sequence comes to its end.
//
// A Scheduler belongs to one goroutine.
package sched

import (
	"errors"
	"fmt"
	"math"

	"github.com/rouse-dev/rouse/engine/block"
)

// ID names a sequence; the caller chooses it.
type ID uint64

// Unknown stands for a token that its worker chose and the scheduler has not heard of yet.
const Unknown int32 = -1

// Config bounds a step. Zero fields but Budget and Seats have the default that is named.
type Config struct {
	Budget int  // tokens per step, guesses included; at least Seats
	Seats  int  // sequences that run at once
	Depth  int  // batches in flight; 0 means 1: the next batch waits for the results of the last
	Prefix bool // keep the blocks of finished sequences, and find them again by their tokens

	Draft      int // the most tokens guessed ahead in one sequence and step; 0 guesses none
	DraftSeats int // drafts are made only while at most so many sequences run: with more, the step has enough work; 0 means 8

	Patience int // how many turns pass before one belongs to the sequence that has waited longest; 0 means 64
	Aging    int // how many steps, with a sequence waiting in each of them, before the next turn belongs to the sequence that has waited longest; 0 means 128
}

// Validate reports what is wrong with c.
func (c Config) Validate() error {
	if c.Seats < 1 || c.Budget < c.Seats {
		return fmt.Errorf("scheduler: %d running sequences in a budget of %d tokens per step: want at least 1 sequence, and at least as many tokens", c.Seats, c.Budget)
	}
	if c.Depth < 0 || c.Draft < 0 || c.DraftSeats < 0 || c.Patience < 0 || c.Aging < 0 {
		return fmt.Errorf("scheduler: depth %d, draft %d, draft seats %d, patience %d, aging %d: want none of them negative", c.Depth, c.Draft, c.DraftSeats, c.Patience, c.Aging)
	}
	return nil
}

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		v *int
		d int
	}{{&c.Depth, 1}, {&c.DraftSeats, 8}, {&c.Patience, 64}, {&c.Aging, 128}} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	return c
}

// Request is one or more sequences to compute, which share a prompt.
type Request struct {
	ID       ID
	Prompt   []int32 // at least one token; the scheduler keeps the slice
	Max      int     // the most tokens that a sequence will ever have, prompt included; unused with Pool
	Priority int     // the lower, the sooner; 0 is as good as any other number
	Tenant   string  // shares the budget with the other tenants of this priority

	Root     block.Hash // what must be equal, besides the tokens, to share blocks: see block.Key
	Siblings int        // so many sequences with the numbers ID, ID+1, …; 0 means 1. The prompt is computed once

	Score    bool // the logits at every prompt position but the last are wanted, of the first sibling that computes them; the prefix cache is not asked
	Pool     bool // an embedding is wanted: the prompt is computed, nothing is sampled. The prefix cache is not asked
	Lockstep bool // the caller must know each token before the next is chosen: no placeholders, no guesses
	NoDraft  bool // no guesses
}

// ErrTooLong is wrapped by the error for a sequence that the pool can't hold.
var ErrTooLong = errors.New("the sequence does not fit in the KV memory")

// Item is one sequence's share of a step. Its slices are the scheduler's, and valid until
// the next call of Schedule, Update, Abort or Reset.
type Item struct {
	ID     ID
	Tokens []int32 // the tokens to compute; Unknown where the worker puts the token that it chose last for this sequence
	Pos    int     // position of Tokens[0] in the sequence
	Blocks []int32 // the sequence's blocks, enough for Pos+len(Tokens) tokens
	New    int     // how many at the end of Blocks the worker has not seen. It has seen the others: the list only grows, until a Begin
	Draft  int     // so many at the end of Tokens are guesses. The worker returns those that it would have chosen, up to the first other one, and that one
	Known  []int32 // with Begin: all tokens of the sequence that are known, computed or not

	Begin  bool // the worker does not know the sequence, or must forget what it knows
	Sample bool // the last of Tokens is the sequence's last: the caller owes a [Result]
	Score  bool // the logits after every one of Tokens are wanted
	Pool   bool // the hidden states of all of Tokens are wanted. With Sample they are the last ones, and the Result has no tokens
}

// Copy is a block to copy whole before a batch is computed.
type Copy struct{ From, To int32 }

// Batch is what one step computes: Ends first, then Copies in their order, then all Items together.
// No block is written by two items, nor read by one and written by another. Its slices are the
// scheduler's, as those of its items are.
type Batch struct {
	Step   uint64 // 1 for the first batch, and 1 more for each next one
	Items  []Item
	Copies []Copy
	Ends   []ID // sequences that the worker can forget. An Item may begin a new one with the same number
	Tokens int  // in all items
}

// Result is the result of an [Item] with Sample.
type Result struct {
	ID     ID
	Tokens []int32 // the one that was chosen; after guesses, those that were right before it. Not kept
	Done   bool    // the sequence ends here
}

// Stats are levels, but for those that count since New.
type Stats struct {
	Running, Waiting        int
	BlocksUsed, BlocksTotal int
	BlocksCached            int // with a name in the prefix cache, used ones included
	// TokensUsed are those whose keys and values running sequences hold, what they share counted
	// once; TokensWaiting are those of waiting sequences, none of which is computed.
	TokensUsed, TokensWaiting int

	Preemptions int // counts
	Evictions   int // counts blocks that the prefix cache lost
	PrefixAsked int // counts tokens of sequences that began and asked the prefix cache
	PrefixFound int // counts those of them that it had
	Drafted     int // counts tokens guessed
	Accepted    int // counts those of them that were right
	Promoted    int // counts sequences that went first because they had waited longest
}

// Scheduler holds all sequences that are not finished.
type Scheduler struct {
	cfg     Config
	pool    *block.Pool
	byID    map[ID]*sequence
	arrived uint64
	running []*sequence // by rank, then by arrival; those that are gone are removed by the next Schedule
	gone    int         // of running
	queue   queue
	parked  int // waiting sequences that are not in the queue but with their group
	tokens  int // of all sequences
	turns   int // since the sequence that has waited longest had one
	waited  int // steps since then, or since a sequence waits

	step    uint64
	batch   Batch
	chunks  []*sequence // running ones whose prompt is not done; within Schedule
	full    []*sequence // that may fill a block with this batch; within Schedule
	done    []*group    // whose prompt is in this batch; within Schedule
	drafts  []int32     // the Tokens of items with guesses; within Schedule
	ends    []ID        // for the next batch
	flights []flight    // a ring of Depth
	first   int         // the oldest flight
	flying  int         // batches in flight

	counts Stats // the counters
}

// New makes a scheduler that owns all of the pool's blocks. The configuration must be valid.
func New(cfg Config, pool *block.Pool) *Scheduler {
	cfg = cfg.withDefaults()
	return &Scheduler{cfg: cfg, pool: pool, byID: map[ID]*sequence{}, queue: newQueue(), flights: make([]flight, cfg.Depth)}
}

// Add queues sequences. It fails for an ID that is in use, an empty prompt, a
// Max that leaves no room for a token, and with [ErrTooLong].
func (s *Scheduler) Add(r Request) error {
	n := max(1, r.Siblings)
	for i := range n {
		if s.byID[r.ID+ID(i)] != nil {
			return fmt.Errorf("add sequence %d: the ID is in use", r.ID+ID(i))
		}
	}
	limit := r.Max - 1 // the last token is never computed, so it needs no memory
	if r.Pool {
		limit = len(r.Prompt)
	}
	switch {
	case r.Siblings < 0 || r.Pool && (n > 1 || r.Score):
		return fmt.Errorf("add sequence %d: %d siblings, pool %v, score %v: want 0 or more, and an embedding alone", r.ID, r.Siblings, r.Pool, r.Score)
	case len(r.Prompt) == 0 || limit < len(r.Prompt):
		return fmt.Errorf("add sequence %d: %d prompt tokens of at most %d tokens: want at least 1, and room for 1 more", r.ID, len(r.Prompt), r.Max)
	}
	if need, have := s.pool.Need(limit), s.pool.Count(); need > have {
		return fmt.Errorf("%w: %d tokens need %d blocks, there are %d blocks of %d tokens", ErrTooLong, max(r.Max, limit), need, have, s.pool.Size())
	}
	var hashes []block.Hash
	if s.cfg.Prefix {
		hashes = block.Chain(make([]block.Hash, 0, len(r.Prompt)/s.pool.Size()), r.Root, r.Prompt, s.pool.Size())
	}
	r.Priority = max(r.Priority, math.MinInt+1)
	var g *group
	if n > 1 && len(r.Prompt) > 1 { // else there is nothing to share
		g = &group{members: make([]*sequence, 0, n)}
	}
	f := s.queue.flow(r.Priority, r.Tenant)
	for i := range n {
		q := newSequence(r, limit, hashes)
		q.id += ID(i)
		q.flow, q.group, q.order = f, g, s.arrived
		s.arrived++
		f.live++
		s.byID[q.id] = q
		s.tokens += len(q.tokens)
		s.queue.push(q)
		if g != nil {
			g.members = append(g.members, q)
		}
	}
	return nil
}

// Abort drops a sequence, running, waiting or in flight, and frees its blocks. It reports
// whether there was one. What a batch in flight says of it is ignored.
func (s *Scheduler) Abort(id ID) bool {
	q := s.byID[id]
	if q == nil {
		return false
	}
	s.drop(q)
	return true
}

// Reset is for when the worker is gone, or failed to compute a batch: nothing is in flight,
// computed or cached any more. All sequences wait, with the tokens that they have, in the order in which
// they came. Updates for earlier batches are ignored.
func (s *Scheduler) Reset() {
	s.tidy()
	running := s.running
	s.running = nil
	for _, q := range running {
		s.release(q)
		q.state = queued
		s.queue.push(q)
	}
	for _, q := range s.byID {
		q.reset()
		q.seen, q.flying = false, 0
		if q.group != nil {
			s.unpark(q.group)
		}
	}
	s.pool.Evict()
	s.flying, s.ends = 0, s.ends[:0]
}

// Stats returns the current numbers.
func (s *Scheduler) Stats() Stats {
	t := s.counts
	t.Running, t.Waiting = len(s.running)-s.gone, s.queue.len+s.parked
	t.BlocksUsed, t.BlocksTotal = s.pool.Count()-s.pool.Available(), s.pool.Count()
	t.BlocksCached, t.Evictions = s.pool.Cached(), s.pool.Evictions()
	t.TokensUsed, t.TokensWaiting = t.BlocksUsed*s.pool.Size(), s.tokens
	for _, q := range s.running {
		if q.state == running { // not gone
			t.TokensUsed -= len(q.blocks)*s.pool.Size() - q.computed // only a whole block is shared
			t.TokensWaiting -= len(q.tokens)
		}
	}
	return t
}

// Busy reports whether any sequence is not finished.
func (s *Scheduler) Busy() bool { return len(s.byID) > 0 }

// InFlight is the number of batches whose results are not known.
func (s *Scheduler) InFlight() int { return s.flying }
