//go:build amd64 || arm64

package kernel

// few blocks are processed for all queries before the next ones, so that they stay in the first-level cache.
const few = 4

// attendArgs are for one query, or four whose scores and weights are Span apart: from queries to scores, or from
// weights to sums. n blocks are stride bytes apart; mix1 uses rows positions of each.
type attendArgs struct {
	to, from           *float32
	cache              *uint16
	blocks             *int32
	n, stride, d, rows int
}

func (v *view) scoresVector(dst, q []float32, n int) bool {
	d := v.HeadDim
	if using == generic || d < 2 || d%2 != 0 {
		return false
	}
	keys := &v.Memory[v.Keys]
	for j := 0; j < len(v.blocks); j += few {
		blocks := v.blocks[j:min(j+few, len(v.blocks))]
		for i := 0; i < n; i += 4 {
			a := attendArgs{&dst[i*Span+j*Block], &q[i*d], keys, &blocks[0], len(blocks), 2 * v.Stride, d, 0}
			if i+1 < n {
				scores4(a)
			} else {
				scores1(a)
			}
		}
	}
	return true
}

func (v *view) mixVector(acc, weights []float32, sees []window) bool {
	d := v.HeadDim
	if using == generic || d%16 != 0 {
		return false
	}
	for j := 0; j < len(v.blocks); j += few {
		blocks := window{j, min(j+few, len(v.blocks))}
		i := 0
		for ; i+1 < len(sees); i += 4 {
			v.mixFour(acc[i*d:], weights[i*Span:], sees[i:min(i+4, len(sees))], blocks)
		}
		if i < len(sees) {
			v.mixOne(acc[i*d:], weights[i*Span:], sees[i], blocks)
		}
	}
	return true
}

// mixFour reads blocks that all of up to four queries see completely once.
func (v *view) mixFour(acc, weights []float32, sees []window, blocks window) {
	whole := blocks
	for _, w := range sees {
		whole.lo, whole.hi = max(whole.lo, (w.lo+Block-1)/Block), min(whole.hi, w.hi/Block)
	}
	d := v.HeadDim
	if whole.lo >= whole.hi {
		for i, w := range sees {
			v.mixOne(acc[i*d:], weights[i*Span:], w, blocks)
		}
		return
	}
	for i, w := range sees {
		v.mixOne(acc[i*d:], weights[i*Span:], w, window{blocks.lo, whole.lo})
	}
	mix4(attendArgs{&acc[0], &weights[whole.lo*Block], &v.Memory[v.Values], &v.blocks[whole.lo], whole.hi - whole.lo, 2 * v.Stride, d, 0})
	for i, w := range sees {
		v.mixOne(acc[i*d:], weights[i*Span:], w, window{whole.hi, blocks.hi})
	}
}

func (v *view) mixOne(acc, weights []float32, sees, blocks window) {
	sees = window{max(sees.lo, blocks.lo*Block), min(sees.hi, blocks.hi*Block)}
	d := v.HeadDim
	for sees.lo < sees.hi {
		b, row := sees.lo/Block, sees.lo%Block
		rows, n := min(Block-row, sees.hi-sees.lo), 1
		if rows == Block {
			n = (sees.hi - sees.lo) / Block
		}
		mix1(attendArgs{&acc[0], &weights[sees.lo], &v.Memory[v.Values+row*d], &v.blocks[b], n, 2 * v.Stride, d, rows})
		sees.lo += n * rows
	}
}
