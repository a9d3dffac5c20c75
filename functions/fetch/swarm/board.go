package swarm

import (
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
)

// board is what a download knows: of its own chunks, and of its peers'. It decides what to fetch from whom; it does no I/O
// and reads no clock.
type board struct {
	name    string // of this node
	chunks  []chunk
	missing int
	peers   []*peer
	// disputes are chunks of which two nodes vouch for different contents.
	disputes map[int]bool
	// auditing says that the whole is wrong, and nobody disagrees with what is here.
	auditing bool
	// holders counts, for each chunk, the peers from which it can be had.
	holders []int
	ranks   []uint8 // what rank returns; nil: to be worked out
	rng     *rand.Rand
}

// chunk is one of this node's.
type chunk struct {
	have   bool
	proven bool // it came from the source
	sum    Sum
	from   string // where it came from, of the peers
	// flights are the transfers under way, and since when the first one is.
	flights int
	since   time.Time
}

// claim is what a peer's log says of a chunk.
type claim struct {
	there, proven bool
	sum           Sum
}

// peer is another node.
type peer struct {
	addr, name string
	log        string
	claims     []claim
	begun      map[int]time.Time // what it fetches from the source, since when
	alive      bool              // it has answered the last question
	asked      bool              // it has answered one, or failed to
	whole      bool
	convicted  bool
	busy       int
	strikes    int // transfers that failed in a row
	until      time.Time
}

// usable says whether chunks may be had from p at all.
func (p *peer) usable() bool { return p.alive && !p.convicted }

// vouches says whether p vouches for a content of chunk i.
func (p *peer) vouches(i int, s Sum) bool {
	return !p.convicted && p.claims != nil && p.claims[i].there && (p.claims[i].proven || p.whole) && p.claims[i].sum == s
}

// begunFor is how long a chunk that a peer has begun is left to it.
const begunFor = 15 * time.Second

// looked bounds how many chunks are compared for one choice.
const looked = 256

// vouched says whether anybody vouches for a content of chunk i.
func (b *board) vouched(i int, s Sum) bool {
	for _, p := range b.peers {
		if p.vouches(i, s) {
			return true
		}
	}
	return false
}

// recount works out holders anew, and has ranks worked out anew.
func (b *board) recount() {
	b.ranks = nil
	clear(b.holders)
	for _, p := range b.peers {
		if !p.usable() {
			continue
		}
		for i := range p.claims {
			if p.claims[i].there {
				b.holders[i]++
			}
		}
	}
}

// rank is this node's place among those that may fetch chunk i from the source: 0, it is its to fetch. All nodes that know of
// one another say the same, and when one goes only its chunks change hands (rendezvous hashing).
func (b *board) rank(i int) int {
	if b.ranks == nil {
		names := []string{}
		for _, p := range b.peers {
			if p.usable() && !p.whole && p.name != "" {
				names = append(names, p.name)
			}
		}
		b.ranks = make([]uint8, len(b.chunks))
		for c := range b.ranks {
			own := weight(b.name, c)
			for _, name := range names {
				if w := weight(name, c); w > own || w == own && name > b.name {
					b.ranks[c]++
				}
			}
		}
	}
	return int(b.ranks[i])
}

func weight(name string, chunk int) uint64 {
	return xxhash.Sum64(append([]byte(name), byte(chunk>>24), byte(chunk>>16), byte(chunk>>8), byte(chunk)))
}

// slots is how many chunks this node fetches from the source at once: most alone, fewer where others fetch too, so that each
// chunk is here sooner and passed on; two at least, so that one comes while the other is asked for.
func (b *board) slots(most int) int {
	nodes := 1
	for _, p := range b.peers {
		if p.usable() && !p.whole {
			nodes++
		}
	}
	return min(most, max(2, most/nodes))
}

// open says whether another transfer of chunk i may begin: there is none, or the first one is late.
func (b *board) open(i int, now time.Time, late time.Duration) bool {
	c := &b.chunks[i]
	return !c.have && (c.flights == 0 || c.flights == 1 && now.Sub(c.since) > late)
}

// fromPeer is what to fetch from p: of the chunks that it has, and that somebody vouches for, the one that fewest have; -1: nothing.
// A transfer under way for longer than late gets a second one.
func (b *board) fromPeer(p *peer, now time.Time, late time.Duration) int {
	if !p.usable() || p.claims == nil || now.Before(p.until) {
		return -1
	}
	best, seen := -1, 0
	start := b.rng.IntN(len(b.chunks))
	for k := range b.chunks {
		i := (start + k) % len(b.chunks)
		c := &p.claims[i]
		if !c.there || b.disputes[i] || !b.open(i, now, late) || !b.vouched(i, c.sum) {
			continue
		}
		if best < 0 || b.chunks[i].flights < b.chunks[best].flights || b.chunks[i].flights == b.chunks[best].flights && b.holders[i] < b.holders[best] {
			best = i
		}
		if seen++; seen == looked {
			break
		}
	}
	return best
}

// fromSource is what to fetch from the source; -1: nothing. In this order:
//
//  1. what nodes disagree about
//  2. where the whole is wrong, anything that came from a peer
//  3. what is this node's to fetch, and no peer has
//  4. what is others' to fetch, and they have not begun, if this node has fetched nothing for idle: each of the others in
//     turn waits for another patience, so that one of them takes it
//  5. what peers have, and do not bring
func (b *board) fromSource(now time.Time, late, idle, patience time.Duration) int {
	for i := range b.disputes { // 1
		if b.chunks[i].flights == 0 {
			return i
		}
	}
	best, rank := -1, 4
	start := b.rng.IntN(len(b.chunks))
	for k := range b.chunks {
		i := (start + k) % len(b.chunks)
		c := &b.chunks[i]
		if b.auditing && c.have && !c.proven && c.flights == 0 { // 2
			return i
		}
		if !b.open(i, now, late) {
			continue
		}
		r := 3 // 5
		switch {
		case c.flights == 0 && b.offered(i):
			continue
		case c.flights > 0:
		case b.elsewhere(i, now):
			continue
		case b.rank(i) == 0: // 3
			return i
		case idle < time.Duration(b.rank(i))*patience:
			continue
		default: // 4
			r = 2
		}
		if r < rank {
			best, rank = i, r
		}
	}
	return best
}

// offered says whether chunk i can be had from a peer.
func (b *board) offered(i int) bool {
	if b.holders[i] == 0 || b.disputes[i] {
		return false
	}
	for _, p := range b.peers {
		if p.usable() && p.claims != nil && p.claims[i].there && p.strikes < maxStrikes && b.vouched(i, p.claims[i].sum) {
			return true
		}
	}
	return false
}

// maxStrikes is how many transfers in a row may fail until a peer's chunks are fetched elsewhere.
const maxStrikes = 3

// elsewhere says whether a peer fetches chunk i from the source now.
func (b *board) elsewhere(i int, now time.Time) bool {
	for _, p := range b.peers {
		if at, ok := p.begun[i]; ok && p.usable() && now.Sub(at) < begunFor {
			return true
		}
	}
	return false
}

// compare looks at what p vouches for of chunk i. wrong says that the source has told otherwise; else a disagreement becomes
// a dispute.
func (b *board) compare(p *peer, i int) (wrong bool) {
	cl := &p.claims[i]
	if !p.vouches(i, cl.sum) {
		return false
	}
	c := &b.chunks[i]
	if c.have && c.proven {
		return c.sum != cl.sum
	}
	differs := c.have && c.sum != cl.sum
	for _, o := range b.peers {
		differs = differs || o != p && o.claims != nil && o.vouches(i, o.claims[i].sum) && o.claims[i].sum != cl.sum
	}
	if differs {
		b.disputes[i] = true
	}
	return false
}
