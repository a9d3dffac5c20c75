package cpu

import (
	"fmt"
	"os"

	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/model"
)

// Shard makes a Runner one of several ranks that compute a model together, each some rows of every matrix and some
// heads. Every rank's Forward gets the same batches in the same order, and returns a single Runner's result, to the bit. The configurations must be equal except for Rank.
type Shard struct {
	Rank, Of int
	// Memory is an initially empty file that all ranks map, as of memfd_create. The caller may close it after Open.
	Memory *os.File
}

func (s Shard) validate() error {
	switch {
	case s.Of == 0 && s.Rank == 0, s.Of == 1 && s.Rank == 0:
		return nil
	case s.Of < 0 || s.Of > maxRanks || s.Rank < 0 || s.Rank >= s.Of:
		return fmt.Errorf("cpu config: rank %d of %d: want a rank from 0 to %d, of at most %d", s.Rank, s.Of, max(0, s.Of-1), maxRanks)
	case s.Memory == nil:
		return fmt.Errorf("cpu config: %d ranks need memory that they share, and Shard.Memory is missing", s.Of)
	}
	return nil
}

type rows struct{ lo, hi int } // half-open

// share is a rank's part. Ranges of rows begin at multiples of kernel.Tile; q and kv may extend beyond the heads, and
// so overlap.
type share struct {
	rank, of   int
	kvHeads    rows
	q, kv      rows
	dim, vocab rows
}

func newShare(c model.Config, s Shard) share {
	of := max(s.Of, 1)
	out := share{rank: s.Rank, of: of}
	out.kvHeads, out.dim, out.vocab = out.even(c.KVHeads, 1), out.even(c.Dim, kernel.Tile), out.even(c.Vocab, kernel.Tile)
	around := func(perHead, n int) rows {
		if out.kvHeads.lo == out.kvHeads.hi {
			return rows{}
		}
		return rows{out.kvHeads.lo * perHead / kernel.Tile * kernel.Tile, min(n, (out.kvHeads.hi*perHead+kernel.Tile-1)/kernel.Tile*kernel.Tile)}
	}
	out.q = around(c.Heads/c.KVHeads*c.HeadDim, c.Heads*c.HeadDim)
	out.kv = around(c.HeadDim, c.KVHeads*c.HeadDim)
	return out
}

// Only one rank has layers of different shapes.
func (s *share) heads(l *layer) rows {
	if s.of == 1 {
		return rows{0, l.kvHeads}
	}
	return s.kvHeads
}

// rows are used by this rank in every step.
func (s *share) rows(p *packed) rows {
	n := p.to.Rows
	switch {
	case p.role == looked:
		return rows{}
	case p.role == whole || s.of == 1:
		return rows{0, n}
	case p.role == byHeads:
		return s.q
	case p.role == byKVHeads:
		return s.kv
	}
	return s.even(n, kernel.Tile)
}

// even returns the rank's share of n things, in units.
func (s *share) even(n, unit int) rows {
	units := (n + unit - 1) / unit
	return rows{min(n, units*s.rank/s.of*unit), min(n, units*(s.rank+1)/s.of*unit)}
}

// resident parts are used by this rank in every step.
func (s *share) resident(w *weights) [][]byte {
	var out [][]byte
	for i := range w.matrices {
		p := &w.matrices[i]
		r := s.rows(p)
		if r.lo < r.hi {
			lo, hi := r.lo/kernel.Tile*p.to.tile, (r.hi+kernel.Tile-1)/kernel.Tile*p.to.tile
			out = append(out, p.to.Data[lo:hi])
		}
	}
	return out
}
