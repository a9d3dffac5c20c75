package worker

import "fmt"

// pool makes one vector of hidden states, which come in pieces.
type pool struct {
	how  string
	n    int
	sum  []float64 // mean only
	kept []float32 // first and last
}

// poolRank: the model itself makes the one number.
const poolRank = "rank"

func newPool(how string) (pool, error) {
	switch how {
	case "mean", "last", "first", poolRank:
		return pool{how: how}, nil
	}
	return pool{}, fmt.Errorf("pooling %q is unknown: want mean, last, first or rank", how)
}

// add takes hidden states [tokens, dim], and sums one by one: no result depends on the pieces.
func (p *pool) add(hidden []float32, dim int) {
	for len(hidden) >= dim {
		row := hidden[:dim]
		hidden = hidden[dim:]
		if p.n++; p.how == "mean" {
			if p.sum == nil {
				p.sum = make([]float64, dim)
			}
			for i, x := range row {
				p.sum[i] += float64(x)
			}
		} else if p.how == "last" || p.n == 1 {
			p.kept = append(p.kept[:0], row...)
		}
	}
}

func (p *pool) vector() []float32 {
	if p.how != "mean" {
		return p.kept
	}
	v := make([]float32, len(p.sum))
	for i, x := range p.sum {
		v[i] = float32(x / float64(p.n))
	}
	return v
}
