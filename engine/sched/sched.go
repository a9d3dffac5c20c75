// Package sched decides what each step of the engine computes: which tokens of which sequences go through the model
// together, and which KV blocks hold their keys and values. It has no clock, no goroutine and no randomness: the same
// calls give the same batches.
//
// There are no prefill and decode phases. A sequence is a list of tokens, of which a prefix is computed; a step
// computes some of the rest. A prompt longer than the step's remaining budget is computed in chunks. A sequence with
// one token left decodes.
//
// Several batches may be in flight: Config.Depth of them are scheduled before the results of the first are known. A
// token sampled by a batch in flight is a placeholder in the next batch, and the worker fills it in. Whether a token
// ends its sequence is known one batch late; the output of that batch after the end is discarded. A sequence that ends
// by Max costs nothing extra, because the number of its tokens is known.
//
// The life of one step:
//
//  1. If the next waiting sequence has a better priority than the last running one, and lacks a seat or memory, the
//     last running one is preempted, provided that this makes enough room. If it lacks a seat and its tenant has less
//     than a share of them, the last one of a tenant with more is preempted.
//  2. Every running sequence that decodes gets its token, and draft tokens (see [Config].Draft). If it needs a block
//     and none is free, the last running sequence frees all its blocks and returns to the queue (preemption by
//     recompute). "Last" is by priority, then by arrival.
//  3. The rest of the budget goes to prompts, of running and waiting sequences, in the order below. A waiting
//     sequence needs a seat, and blocks for all its tokens; those in the prefix cache or computed by a sibling are
//     not computed again. While another tenant of its priority has sequences, a
//     tenant's prompts that do not end in the step get half of it at most. If the next sequence does not fit, no other overtakes it. A step that preempted in 2 admits
//     none.
//  4. The worker computes the [Batch], in the order of the calls of Schedule, and samples tokens; the caller passes
//     them to Update.
//
// The order of turns: best priority first; then the tenant that got the fewest tokens; then the sequence that arrived
// first. Tenants are compared by virtual time: each computed token of prompt or answer counts once; recomputed and
// cached tokens do not count. A tenant that had nothing waiting starts at the time of those served now, so being idle
// earns nothing. A tenant with a thousand sequences and one with a single sequence thus alternate.
//
// To prevent starvation by better priorities, each Config.Patience-th turn goes to the sequence that has waited
// longest. So does the next turn after Config.Aging steps, because turns are rare where answers are long. That
// sequence goes first from then on and is preempted last.
//
// Every sequence finishes: the first running sequence is never preempted for others to grow, and [Scheduler.Add]
// refuses a sequence that does not fit in the whole pool.
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

// Unknown stands for a token that the worker sampled and the scheduler does not know yet.
const Unknown int32 = -1

// Config bounds a step. Zero fields except Budget and Seats get the named default.
type Config struct {
	Budget int  // tokens per step, drafts included; at least Seats
	Seats  int  // sequences that run at once
	Depth  int  // batches in flight; 0 means 1: the next batch waits for the results of the last
	Prefix bool // keep the blocks of finished sequences in the prefix cache

	Draft      int // the most draft tokens of one sequence in one step; 0 disables drafts
	DraftSeats int // drafts are made only while at most this many sequences run: with more, the step has enough work; 0 means 8

	Patience int // every Patience-th turn goes to the sequence that has waited longest; 0 means 64
	Aging    int // the steps with a waiting sequence after which the next turn goes to the one that has waited longest; 0 means 128
}

// Validate returns an error if c is invalid.
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

// Request is one or more sequences that share a prompt.
type Request struct {
	ID       ID
	Prompt   []int32 // at least one token; the scheduler keeps the slice
	Max      int     // the most tokens of a sequence, prompt included; unused with Pool
	Priority int     // lower goes first; may be negative
	Tenant   string  // shares the budget with the other tenants of this priority

	Whole []Span // ascending, and before the last token

	Root     block.Hash // what must be equal, besides the tokens, for blocks to be shared; see block.Key
	Siblings int        // the number of sequences, with IDs ID, ID+1, …; 0 means 1. The prompt is computed once

	Score    bool // logits are wanted at every prompt position but the last, from the first sibling that computes them; bypasses the prefix cache
	Pool     bool // an embedding is wanted: the prompt is computed, nothing is sampled; bypasses the prefix cache
	Lockstep bool // the caller must know each token before the next is sampled: no placeholders, no drafts
	NoDraft  bool // no drafts
}

// ErrTooLong is wrapped by the error for a sequence that does not fit in the whole pool.
var ErrTooLong = errors.New("the sequence does not fit in the KV memory")

// Item is one sequence's share of a step. The scheduler owns its slices; they are valid until the next call of
// Schedule, Update, Abort or Reset.
type Item struct {
	ID     ID
	Tokens []int32 // the tokens to compute; the worker replaces Unknown by the token it sampled last for this sequence
	Pos    int     // position of Tokens[0] in the sequence
	Blocks []int32 // the sequence's blocks, enough for Pos+len(Tokens) tokens
	New    int     // the number of blocks at the end of Blocks that the worker has not seen. The list only grows, until a Begin
	Draft  int     // the number of draft tokens at the end of Tokens. The worker returns those that it accepts, and the token after them
	Known  []int32 // with Begin: all known tokens of the sequence, computed or not

	Begin  bool // the worker does not know the sequence, or must forget its state
	Sample bool // the last of Tokens is the sequence's last: the caller owes a [Result]
	Score  bool // the logits after each of Tokens are wanted
	Pool   bool // the hidden states of all Tokens are wanted. With Sample they are the last ones, and the Result has no tokens
}

// Copy is a whole block to copy before a batch is computed.
type Copy struct{ From, To int32 }

// Batch is the work of one step: Ends first, then Copies in their order, then all Items together. No block is
// written by two items, nor read by one and written by another. The slices are valid as long as the items' slices.
type Batch struct {
	Step   uint64 // 1 for the first batch, then increasing by 1
	Items  []Item
	Copies []Copy
	Ends   []ID // sequences that the worker must forget: they ended, or lost their blocks. An Item may begin one again
	Tokens int  // in all items
}

// Result is the result of an [Item] with Sample.
type Result struct {
	ID     ID
	Tokens []int32 // the accepted drafts, then the sampled token. Not kept
	Done   bool    // the sequence ends here
}

// Stats holds current levels, and counters since New.
type Stats struct {
	Running, Waiting        int
	BlocksUsed, BlocksTotal int
	BlocksCached            int // blocks in the prefix cache, including used ones
	// TokensUsed is the number of tokens whose keys and values running sequences hold; shared ones count once.
	// TokensWaiting is the number of tokens of waiting sequences.
	TokensUsed, TokensWaiting int

	Preemptions int // counter
	Evictions   int // counter of blocks evicted from the prefix cache
	PrefixAsked int // counter of tokens of admitted sequences that looked in the prefix cache
	PrefixFound int // counter of tokens found there
	Drafted     int // counter of draft tokens
	Accepted    int // counter of accepted draft tokens
	Promoted    int // counter of sequences that went first because they had waited longest
}

// Scheduler holds all sequences that are not finished.
type Scheduler struct {
	cfg     Config
	pool    *block.Pool
	byID    map[ID]*sequence
	arrived uint64
	running []*sequence // by rank, then by arrival; the next Schedule removes gone ones
	gone    int         // the number of gone sequences in running
	queue   queue
	parked  int // waiting sequences parked with their group, not in the queue
	tokens  int // of all sequences
	turns   int // turns since the sequence that has waited longest had one
	waited  int // steps since that turn, or since a sequence waits

	step    uint64
	batch   Batch
	chunks  []*sequence // running sequences whose prompt is not computed; within Schedule
	full    []*sequence // sequences that may fill a block with this batch; within Schedule
	done    []*group    // groups whose prompt is in this batch; within Schedule
	drafts  []int32     // the Tokens of items with drafts; within Schedule
	ends    []ID        // for the next batch
	flights []flight    // a ring of Depth
	first   int         // the oldest flight
	flying  int         // batches in flight

	counts Stats // the counters
}

// New returns a scheduler that owns all blocks of the pool. The configuration must be valid.
func New(cfg Config, pool *block.Pool) *Scheduler {
	cfg = cfg.withDefaults()
	return &Scheduler{cfg: cfg, pool: pool, byID: map[ID]*sequence{}, queue: newQueue(), flights: make([]flight, cfg.Depth)}
}

// Add queues sequences. It fails if an ID is in use, the prompt is empty or Max leaves no room for a token, and with
// [ErrTooLong].
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

// Abort drops a sequence, running, waiting or in flight, and frees its blocks. It reports whether the sequence
// existed. Results for it from batches in flight are ignored.
func (s *Scheduler) Abort(id ID) bool {
	q := s.byID[id]
	if q == nil {
		return false
	}
	s.drop(q)
	return true
}

// Reset forgets all computed state, after the worker was lost or failed to compute a batch. The prefix cache is
// emptied. All sequences wait, with their known tokens, in order of arrival. Updates for earlier batches are ignored.
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
