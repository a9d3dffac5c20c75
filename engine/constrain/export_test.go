package constrain

import (
	"context"
	"slices"
)

// JSONValue is any JSON value.
func JSONValue() Form { return Form{newJSONRules().value} }

// Allows reports whether a mask holds token.
func Allows(mask []uint64, token int32) bool {
	i := int(token) >> 6
	return token >= 0 && i < len(mask) && mask[i]>>(uint(token)&63)&1 != 0
}

// Reset drops what a grammar has cached, and reports whether new texts begin without any of it.
func Reset(g Grammar) bool {
	m := g.(*machine)
	m.reset()
	return !slices.ContainsFunc(m.start.next, func(s *state) bool { return s != nil })
}

// Twin follows a text with an automaton in which every repetition is written out, without tokens.
type Twin struct {
	m  *machine
	at *state
}

// NewTwin fails like [Compile], and if the form is too large when written out.
func NewTwin(ctx context.Context, f Form, v *Vocabulary) (*Twin, error) {
	b := newBuilder(newMeter(ctx, nil), &v.single, true)
	m, err := compile(b, Form{written(b.meter, f.x, map[*rule]*rule{})}, v)
	if err != nil {
		return nil, err
	}
	return &Twin{m, m.start}, nil
}

// Takes reports whether a text may continue with these bytes.
func (t *Twin) Takes(text []byte) bool {
	at := t.at
	for _, b := range text {
		at = t.m.step(at, b)
	}
	return at != dead && at != crowded
}

// Go continues with bytes that it takes, and Ends reports whether the text may end there.
func (t *Twin) Go(text []byte) {
	for _, b := range text {
		t.at = t.m.step(t.at, b)
	}
}

func (t *Twin) Ends() bool { return t.at.end }

// written returns a form whose counted automata are products.
func written(m *meter, x expr, rules map[*rule]*rule) expr {
	all := func(list []expr) (out []expr) {
		for _, y := range list {
			out = append(out, written(m, y, rules))
		}
		return out
	}
	switch x := x.(type) {
	case counted:
		return intersect(m, x.g, newGraph(m, repeat{jsonClass(anyChar()), x.min, x.max}))
	case sequence:
		return sequence(all(x))
	case choice:
		return choice(all(x))
	case repeat:
		return repeat{written(m, x.x, rules), x.min, x.max}
	case inOrder:
		y := inOrder{least: x.least, more: x.more, comma: x.comma}
		if x.more != nil {
			y.more = written(m, x.more, rules)
		}
		for _, i := range x.items {
			y.items = append(y.items, item{written(m, i.x, rules), i.required})
		}
		return y
	case *rule:
		r, ok := rules[x]
		if !ok {
			r = &rule{name: x.name}
			rules[x] = r
			r.body = written(m, x.body, rules)
		}
		return r
	}
	return x
}

// Size returns the number of tokens.
func (v *Vocabulary) Size() int { return v.size }
