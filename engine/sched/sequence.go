package sched

import (
	"slices"

	"github.com/rouse-dev/rouse/engine/block"
)

type state uint8

const (
	queued  state = iota // in the queue
	parked               // until a sibling has computed the prompt
	running              // has a seat and blocks
	gone                 // finished or aborted; batches in flight may have it
)

// ahead is the tokens that a sequence gets memory for at first.
const ahead = 1024

type sequence struct {
	id         ID
	tokens     []int32
	blocks     []int32
	computed   int    // also in a batch in flight
	flying     int    // placeholders after tokens
	limit      int    // most positions ever computed
	room       int    // positions that blocks hold
	sent       int    // blocks that the worker has seen
	registered int    // blocks in the prefix cache
	fills      int    // the value of computed at which the next block is registered
	high       int    // most computed; positions below are not counted again
	from       int    // position of its last item
	step       uint64 // of its last item
	flow       *flow
	draft      *draft // nil: no drafts
	group      *group // nil: no siblings
	life       uint32 // how often blocks were lost
	state      state
	begin      bool // the next item has Begin
	seen       bool // the worker has state to forget
	guessing   bool // drafts are in flight
	lockstep   bool // from the request:
	pool       bool
	score      bool

	rank   int    // its priority, or promoted
	order  uint64 // of arrival
	since  uint64 // step since which it waits
	hashes []block.Hash
	req    Request

	next, prev *sequence // in the queue
}

func newSequence(r Request, limit int, hashes []block.Hash) *sequence {
	return &sequence{
		id: r.ID, tokens: slices.Clip(r.Prompt), limit: limit, hashes: slices.Clip(hashes), rank: r.Priority, req: r, begin: true,
		lockstep: r.Lockstep, pool: r.Pool, score: r.Score,
	}
}

// total counts placeholders too.
func (q *sequence) total() int { return len(q.tokens) + q.flying }

// left counts the tokens that can be computed now.
func (q *sequence) left() int { return min(q.total(), q.limit) - q.computed }

// reset needs that blocks are free.
func (q *sequence) reset() {
	q.computed, q.room, q.sent, q.registered, q.fills = 0, 0, 0, 0, 0
	q.begin, q.guessing = true, false
	q.life++
}

// prepare allocates, and copies Add's slices.
func (q *sequence) prepare(cfg Config, size int) {
	if q.high > 0 {
		return
	}
	n := min(q.limit+1, len(q.tokens)+ahead)
	q.tokens = append(make([]int32, 0, n), q.tokens...)
	if cfg.Prefix {
		q.hashes = append(make([]block.Hash, 0, n/size), q.hashes...)
	}
	q.blocks = make([]int32, 0, min(q.limit+size-1, n+cfg.Draft+size)/size)
	if cfg.Draft > 0 && !q.lockstep && !q.pool {
		q.draft = newDraft(cfg.Draft, n)
		q.draft.index(q.tokens, 0)
	}
}

// Of running sequences the last is preempted first.
func (q *sequence) before(o *sequence) bool {
	if q.rank != o.rank {
		return q.rank < o.rank
	}
	return q.order < o.order
}

// group shares a prompt. The leader computes it while the others are parked. They begin with the blocks of any member
// that has it.
type group struct {
	members []*sequence // unfinished
	leader  *sequence   // nil: none computes the prompt
	pending []*sequence // parked
}

// donor returns a running member that computed the prompt but its last token in batches before step, or nil.
func (g *group) donor(step uint64) *sequence {
	for _, q := range g.members {
		if q.state != running {
			continue
		}
		have := q.computed
		if q.step == step {
			have = q.from
		}
		if have >= len(q.req.Prompt)-1 && have > 0 {
			return q
		}
	}
	return nil
}

func (s *Scheduler) park(q *sequence) {
	s.queue.remove(q)
	q.state = parked
	q.group.pending = append(q.group.pending, q)
	s.parked++
}

func (s *Scheduler) unpark(g *group) {
	g.leader = nil
	for _, q := range g.pending {
		q.state = queued
		s.queue.push(q)
	}
	s.parked -= len(g.pending)
	g.pending = g.pending[:0]
}

func (s *Scheduler) leave(q *sequence) {
	g := q.group
	is := func(o *sequence) bool { return o == q }
	g.members = slices.DeleteFunc(g.members, is)
	if q.state == parked {
		g.pending = slices.DeleteFunc(g.pending, is)
		s.parked--
	}
	if g.leader == q {
		s.unpark(g)
	}
}
