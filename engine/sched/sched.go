// Package sched decides what each step of the engine computes: which tokens of
// which sequences go through the model together, and which blocks of KV memory
// hold their attention state. It has no clock, no goroutine and no randomness:
// the same calls give the same batches.
//
// There are no phases. A sequence is a list of known tokens of which the first
// few are computed; a step moves it forward by some of the rest. A prompt that
// is longer than a step's budget is computed in chunks; a sequence that has one
// token left to compute decodes.
//
// The life of one step:
//
//  1. Every running sequence that decodes gets its token, in order of arrival.
//     Where it needs one more block and none is free, the running sequence that
//     arrived last gives all of its blocks back and returns to the head of the
//     queue (preemption); it will be computed again from its first token.
//  2. Running sequences with more than one token left share the rest of the budget.
//  3. If nobody was preempted, waiting sequences are admitted in order of arrival
//     while there is budget and a seat, and blocks for all of the known tokens of
//     the first one. A later one never overtakes it.
//  4. The caller computes the [Batch], chooses tokens, and hands them to Update.
//
// The first arrival is never preempted, and [Scheduler.Add] refuses what the
// whole pool could not hold, so every sequence comes to its end.
//
// A Scheduler belongs to one goroutine.
package sched

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/block"
)

// ID names a sequence; the caller chooses it.
type ID uint64

// Config bounds a step. Both fields must be positive.
type Config struct {
	Budget int // tokens per step
	Seats  int // sequences that run at once; no more than Budget, or some would not move
}

// Validate reports what is wrong with c.
func (c Config) Validate() error {
	if c.Seats < 1 || c.Budget < c.Seats {
		return fmt.Errorf("scheduler: %d running sequences in a budget of %d tokens per step: want at least 1 sequence, and at least as many tokens", c.Seats, c.Budget)
	}
	return nil
}

// Request is a sequence to compute.
type Request struct {
	ID     ID
	Prompt []int32 // at least one token; the scheduler keeps the slice
	Max    int     // the most tokens that the sequence will ever have, prompt included
	// Every asks for the logits after every token of the prompt, not only the last.
	// Such a prompt is computed one token a step.
	Every bool
}

// ErrTooLong is wrapped by the error for a sequence that the pool can't hold.
var ErrTooLong = errors.New("the sequence does not fit in the KV memory")

// Item is one sequence's share of a step. Its slices are the scheduler's, and valid until the next call of Update, Abort or Schedule.
type Item struct {
	ID     ID
	Tokens []int32 // the tokens to compute
	Pos    int     // position of Tokens[0] in the sequence
	Blocks []int32 // the sequence's blocks, enough for Pos+len(Tokens) tokens
	Logits bool    // the logits after the last of Tokens are wanted
	Sample bool    // the last of Tokens is the sequence's last: the caller owes a [Result]
}

// Batch is what one step computes. No items mean that there is nothing to do.
type Batch struct {
	Items  []Item
	Tokens int // in all items
}

// Result is the token chosen after an [Item] with Sample.
type Result struct {
	ID    ID
	Token int32
	Done  bool // the sequence ends here; its blocks are free
}

// Stats are levels, but for Preemptions, which counts since New.
type Stats struct {
	Running, Waiting        int
	BlocksUsed, BlocksTotal int
	Preemptions             int
}

type sequence struct {
	Request
	tokens   []int32
	computed int
	blocks   []int32
}

// left is how many known tokens are not computed.
func (s *sequence) left() int { return len(s.tokens) - s.computed }

// Scheduler holds all sequences that are not finished.
type Scheduler struct {
	cfg         Config
	pool        *block.Pool
	running     []*sequence // in order of arrival
	waiting     []*sequence // in order of arrival
	byID        map[ID]*sequence
	preemptions int
	batch       Batch
}

// New makes a scheduler that owns all of the pool's blocks. The configuration must be valid.
func New(cfg Config, pool *block.Pool) *Scheduler {
	return &Scheduler{cfg: cfg, pool: pool, byID: make(map[ID]*sequence)}
}

// Add queues a sequence. It fails for an ID that is in use, an empty prompt, a
// Max that leaves no room for a token, and with [ErrTooLong].
func (s *Scheduler) Add(r Request) error {
	if s.byID[r.ID] != nil {
		return fmt.Errorf("add sequence %d: the ID is in use", r.ID)
	}
	if len(r.Prompt) == 0 || r.Max <= len(r.Prompt) {
		return fmt.Errorf("add sequence %d: %d prompt tokens of at most %d tokens: want at least 1, and room for 1 more", r.ID, len(r.Prompt), r.Max)
	}
	// The last token is never computed, so it needs no memory.
	if need, have := s.pool.Need(r.Max-1), s.pool.Count(); need > have {
		return fmt.Errorf("%w: %d tokens need %d blocks, there are %d blocks of %d tokens", ErrTooLong, r.Max, need, have, s.pool.Size())
	}
	q := &sequence{Request: r, tokens: slices.Clip(r.Prompt)}
	s.byID[r.ID] = q
	s.waiting = append(s.waiting, q)
	return nil
}

// Abort drops a sequence and frees its blocks. It reports whether there was one.
func (s *Scheduler) Abort(id ID) bool {
	q := s.byID[id]
	if q == nil {
		return false
	}
	s.drop(q)
	return true
}

func (s *Scheduler) drop(q *sequence) {
	s.release(q)
	delete(s.byID, q.ID)
	is := func(o *sequence) bool { return o == q }
	s.running = slices.DeleteFunc(s.running, is)
	s.waiting = slices.DeleteFunc(s.waiting, is)
}

// Schedule decides the next step. The batch must be computed, and its results
// given to Update, before the next call.
func (s *Scheduler) Schedule() Batch {
	s.batch.Items, s.batch.Tokens = s.batch.Items[:0], 0
	preempted := s.decode()       // 1
	for _, q := range s.running { // 2
		if q.left() > 1 {
			s.put(q, s.cfg.Budget-s.batch.Tokens)
		}
	}
	if !preempted { // 3
		s.admit()
	}
	return s.batch
}

// decode schedules every running sequence that has one token left, and reports whether somebody was preempted for it.
func (s *Scheduler) decode() (preempted bool) {
	for i := 0; i < len(s.running); i++ { // the list may shrink from its end
		q := s.running[i]
		if q.left() != 1 {
			continue
		}
		for !s.grow(q) {
			preempted = true
			if victim := s.preemptLast(); victim == q {
				return
			}
		}
		s.put(q, 1)
	}
	return preempted
}

// admit moves waiting sequences to the running ones while they fit.
func (s *Scheduler) admit() {
	for len(s.waiting) > 0 && len(s.running) < s.cfg.Seats && s.batch.Tokens < s.cfg.Budget {
		q := s.waiting[0]
		if !s.grow(q) {
			return
		}
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.running = append(s.running, q)
		s.put(q, s.cfg.Budget-s.batch.Tokens)
	}
}

// put adds the next tokens of q to the batch, at most budget of them.
func (s *Scheduler) put(q *sequence, budget int) {
	n := min(q.left(), budget)
	every := q.Every && q.computed < len(q.Prompt)
	if every {
		n = min(n, 1)
	}
	if n == 0 {
		return
	}
	last := n == q.left()
	s.batch.Items = append(s.batch.Items, Item{
		ID: q.ID, Tokens: q.tokens[q.computed : q.computed+n], Pos: q.computed, Blocks: q.blocks, Logits: last || every, Sample: last,
	})
	s.batch.Tokens += n
	q.computed += n
}

// grow gives q blocks for all of its tokens; without enough free ones it changes nothing and returns false.
func (s *Scheduler) grow(q *sequence) bool {
	need := s.pool.Need(len(q.tokens)) - len(q.blocks)
	if need <= 0 {
		return true
	}
	var ok bool
	q.blocks, ok = s.pool.AllocN(q.blocks, need)
	return ok
}

// preemptLast sends the last running sequence back to the queue. It arrived before everyone there.
func (s *Scheduler) preemptLast() *sequence {
	last := len(s.running) - 1
	q := s.running[last]
	s.running[last] = nil
	s.running = s.running[:last]
	s.release(q)
	q.computed = 0
	s.waiting = slices.Insert(s.waiting, 0, q)
	s.preemptions++
	return q
}

func (s *Scheduler) release(q *sequence) {
	s.pool.Free(q.blocks...)
	q.blocks = nil
}

// Update appends the chosen tokens to their sequences and drops those that are
// done. A result for a sequence that was aborted meanwhile is ignored.
func (s *Scheduler) Update(results []Result) {
	for _, r := range results {
		q := s.byID[r.ID]
		if q == nil {
			continue
		}
		q.tokens = append(q.tokens, r.Token)
		if r.Done || len(q.tokens) >= q.Max {
			s.drop(q)
		}
	}
}

// Stats returns the current levels.
func (s *Scheduler) Stats() Stats {
	return Stats{
		Running: len(s.running), Waiting: len(s.waiting),
		BlocksUsed: s.pool.Count() - s.pool.Available(), BlocksTotal: s.pool.Count(),
		Preemptions: s.preemptions,
	}
}
