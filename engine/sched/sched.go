// Package sched decides what each step of the engine computes: which tokens of which sequences, and which KV blocks
// hold their keys and values. It has no clock, no goroutine and no randomness.
//
// There are no prefill and decode phases. A sequence is a list of tokens, of which a prefix is computed; a step
// computes some of the rest. A sequence with one token left decodes.
//
// Config.Depth batches may be in flight. A token that one of them samples is a placeholder in the next, which the
// worker fills in. What the next computes after the end of its sequence is discarded.
//
// The life of a step:
//
//  1. If the next waiting sequence has a better priority than the last running one and lacks room, the last one is
//     preempted, if that makes enough. If its tenant has less than its share of seats, one of a tenant with more is.
//  2. Every running sequence that decodes gets its token, and drafts. If no block is free, the last running
//     sequence (by priority, then arrival) frees its blocks and returns to the queue.
//  3. The rest of the budget goes to prompts, of running and waiting sequences. A waiting one needs a seat, and
//     blocks for all its tokens; none overtakes it. While another tenant of its priority has sequences, a tenant's
//     prompts that do not end in the step get half at most. A step that preempted in 2 admits none.
//  4. The worker computes the [Batch], in the order of the calls of Schedule, and the caller passes the tokens to
//     Update.
//
// Turns go to the best priority, then to the tenant with the fewest computed tokens (virtual time: being idle earns
// nothing), then by arrival. Against starvation each 64th turn, and the next one after 128 steps, goes to the sequence
// that has waited longest; it goes first from then on.
//
// Every sequence finishes: the first running one is never preempted for others to grow, and [Scheduler.Add] refuses
// what does not fit in the pool.
//
// A Scheduler belongs to one goroutine.
package sched

import (
	"errors"
	"fmt"
	"math"

	"github.com/rouse-dev/rouse/engine/block"
)

// ID is chosen by the caller.
type ID uint64

// Unknown is a token that only the worker knows.
const Unknown int32 = -1

// Config bounds a step.
type Config struct {
	Budget int  // tokens per step, drafts included; at least Seats
	Seats  int  // sequences that run at once
	Depth  int  // batches in flight; 0: 1
	Prefix bool // keep blocks of finished sequences in the prefix cache
	Draft  int  // most draft tokens of one sequence in one step
}

const (
	draftSeats = 8   // drafts are made up to so many running sequences
	patience   = 64  // each so many turns, one goes to the sequence that has waited longest
	aging      = 128 // so does the turn after so many steps with a waiting sequence
)

// Validate returns an error for an invalid c.
func (c Config) Validate() error {
	if c.Seats < 1 || c.Budget < c.Seats {
		return fmt.Errorf("scheduler: %d running sequences in a budget of %d tokens per step: want at least 1 sequence, and at least as many tokens", c.Seats, c.Budget)
	}
	if c.Depth < 0 || c.Draft < 0 {
		return fmt.Errorf("scheduler: depth %d, draft %d: want neither negative", c.Depth, c.Draft)
	}
	return nil
}

// Request is sequences that share a prompt.
type Request struct {
	ID       ID
	Prompt   []int32 // not empty; the scheduler keeps the slice
	Max      int     // most tokens of a sequence, prompt included; not with Pool
	Priority int     // lower goes first
	Tenant   string  // shares the budget with others of this priority

	Whole []Span // ascending, before the last token

	Root     block.Hash // see block.Key
	Siblings int        // sequences, with IDs ID, ID+1, …; 0: 1

	Score    bool // logits at every prompt position but the last, from the first sibling; bypasses the prefix cache
	Pool     bool // a vector: nothing is sampled; bypasses the prefix cache
	Lockstep bool // no placeholders, no drafts: each token must be known before the next is sampled
}

// ErrTooLong is wrapped for a sequence that does not fit in the whole pool.
var ErrTooLong = errors.New("the sequence does not fit in the KV memory")

// Item is one sequence's share of a step. Its slices are valid until the next call of Schedule, Update, Abort or Reset.
type Item struct {
	ID     ID
	Tokens []int32 // the worker replaces Unknown by the token that it sampled last
	Pos    int     // of Tokens[0] in the sequence
	Blocks []int32 // enough for Pos+len(Tokens) tokens
	New    int     // how many at the end of Blocks the worker does not know. The list grows until a Begin
	Draft  int     // how many drafts are at the end of Tokens. The worker returns those that it accepts, and the token after them
	Known  []int32 // with Begin: all known tokens

	Begin  bool // the worker does not know the sequence, or must forget its state
	Sample bool // the last of Tokens is the sequence's: the caller owes a [Result]
	Score  bool // logits after each of Tokens
	Pool   bool // hidden states of all Tokens. With Sample they are the last, and the Result has no tokens
}

// Copy copies a whole block before a batch.
type Copy struct{ From, To int32 }

// Batch is the work of a step: Ends, then Copies in order, then all Items. No block is written by two items, nor read
// by one and written by another. The slices are as valid as the items'.
type Batch struct {
	Step   uint64 // from 1, increasing by 1
	Items  []Item
	Copies []Copy
	Ends   []ID // to forget. An Item may begin one again
	Tokens int  // in all items
}

// Result is of an [Item] with Sample.
type Result struct {
	ID     ID
	Tokens []int32 // accepted drafts, then the sampled token. Not kept
	Done   bool
}

// Stats has levels, and counters since New.
type Stats struct {
	Running, Waiting        int
	BlocksUsed, BlocksTotal int
	BlocksCached            int // used ones included
	// TokensUsed counts the keys and values of running sequences, shared ones once; TokensWaiting the tokens of waiting
	// ones.
	TokensUsed, TokensWaiting int

	Preemptions int
	Evictions   int // of blocks from the prefix cache
	PrefixAsked int // tokens of sequences that looked in the prefix cache
	PrefixFound int // tokens found there
	Drafted     int // draft tokens
	Accepted    int // draft tokens
	Promoted    int // that went first because they had waited longest
}

// Scheduler holds all unfinished sequences.
type Scheduler struct {
	cfg  Config
	pool *block.Pool

	draftSeats, patience, aging int // the constants

	byID    map[ID]*sequence
	arrived uint64
	running []*sequence // by rank, then by arrival; the next Schedule removes gone ones
	gone    int
	queue   queue
	parked  int // with their group, not in the queue
	tokens  int // of all sequences
	turns   int // since the sequence that has waited longest had one
	waited  int // steps since that, or since a sequence waits

	step    uint64
	batch   Batch
	chunks  []*sequence // prompt not computed; within Schedule
	full    []*sequence // may fill a block; within Schedule
	done    []*group    // prompt is in this batch; within Schedule
	drafts  []int32     // within Schedule
	ends    []ID        // for the next batch
	flights []flight    // a ring of Depth
	first   int         // the oldest
	flying  int

	counts Stats // counters only
}

// New takes all blocks of the pool. cfg must be valid.
func New(cfg Config, pool *block.Pool) *Scheduler {
	cfg.Depth = max(1, cfg.Depth)
	return &Scheduler{
		cfg: cfg, draftSeats: draftSeats, patience: patience, aging: aging,
		pool: pool, byID: map[ID]*sequence{}, queue: newQueue(), flights: make([]flight, cfg.Depth),
	}
}

// Add fails if an ID is in use, the prompt is empty or Max leaves no room for a token, and with [ErrTooLong].
func (s *Scheduler) Add(r Request) error {
	n := max(1, r.Siblings)
	for i := range n {
		if s.byID[r.ID+ID(i)] != nil {
			return fmt.Errorf("add sequence %d: the ID is in use", r.ID+ID(i))
		}
	}
	limit := r.Max - 1 // the last token is never computed
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
		q.flow, q.group, q.order, q.since = f, g, s.arrived, s.step
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

// Abort drops a sequence, and reports whether it existed. Its results from batches in flight are ignored.
func (s *Scheduler) Abort(id ID) bool {
	q := s.byID[id]
	if q == nil {
		return false
	}
	s.drop(q)
	return true
}

// Reset forgets all computed state and the prefix cache. All sequences wait, by arrival, with their known tokens.
// Updates for earlier batches are ignored.
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
			t.TokensUsed -= len(q.blocks)*s.pool.Size() - q.computed // only whole blocks are shared
			t.TokensWaiting -= len(q.tokens)
		}
	}
	return t
}
