package sched

import (
	"slices"

	"github.com/rouse-dev/rouse/engine/block"
)

// state is where a sequence is.
type state uint8

const (
	queued  state = iota // in the queue
	parked               // with its group, until a sibling has computed the prompt
	running              // has a seat and blocks
	gone                 // finished or aborted; batches in flight may still have it
)

// ahead is how many tokens a sequence gets memory for when it first runs, so that a step allocates none.
const ahead = 1024

// sequence is the scheduler's state of one sequence. The first fields are those of every step.
type sequence struct {
	id         ID
	tokens     []int32
	blocks     []int32
	computed   int    // positions that are computed, or are in a batch in flight
	flying     int    // tokens chosen in batches in flight, after those of tokens: placeholders
	limit      int    // positions that are ever computed
	room       int    // positions that blocks hold
	sent       int    // blocks that the worker has seen
	registered int    // blocks that were given their name
	fills      int    // computed must be this for the next one
	high       int    // the most that computed ever was; what is below is not counted again
	from       int    // position of its last item
	step       uint64 // the last batch with an item of it
	flow       *flow
	draft      *draft // nil where nothing is guessed
	group      *group // nil without siblings
	life       uint32 // counts how often it lost its blocks
	state      state
	begin      bool // its next item begins it
	seen       bool // the worker has something of it to forget
	guessing   bool // a batch in flight has guesses
	lockstep   bool // of the request, as is:
	pool       bool
	score      bool

	rank   int    // its priority, or promoted
	order  uint64 // of arrival
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

// total is how many tokens it has, placeholders included.
func (q *sequence) total() int { return len(q.tokens) + q.flying }

// left is how many of them can be computed now.
func (q *sequence) left() int { return min(q.total(), q.limit) - q.computed }

// reset forgets all that is computed. The blocks are freed already.
func (q *sequence) reset() {
	q.computed, q.room, q.sent, q.registered, q.fills = 0, 0, 0, 0, 0
	q.begin, q.guessing = true, false
	q.life++
}

// prepare makes room for the tokens to come, once, and owns what Add was given.
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
	if cfg.Draft > 0 && !q.lockstep && !q.req.NoDraft && !q.pool {
		q.draft = newDraft(cfg.Draft, n)
		q.draft.index(q.tokens, 0)
	}
}

// before orders running sequences: the first is preempted last.
func (q *sequence) before(o *sequence) bool {
	if q.rank != o.rank {
		return q.rank < o.rank
	}
	return q.order < o.order
}

// group is the sequences of one request that share a prompt. While its leader computes it
// the others are parked; afterwards they begin with the blocks of any that has it.
type group struct {
	members []*sequence // unfinished ones
	leader  *sequence   // nil while no sequence computes the prompt, or when it is computed
	pending []*sequence // parked
}

// donor is a running member that has all of the prompt but its last token in earlier batches than step.
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

// park takes a waiting sequence out of the queue until its leader has the prompt.
func (s *Scheduler) park(q *sequence) {
	s.queue.remove(q)
	q.state = parked
	q.group.pending = append(q.group.pending, q)
	s.parked++
}

// unpark puts a group's parked sequences back in the queue; it has no leader.
func (s *Scheduler) unpark(g *group) {
	g.leader = nil
	for _, q := range g.pending {
		q.state = queued
		s.queue.push(q)
	}
	s.parked -= len(g.pending)
	g.pending = g.pending[:0]
}

// leave takes a finished sequence out of its group.
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
