package constrain

import "context"

// JSONValue is any JSON value.
func JSONValue() Form { return Form{newJSONRules().value} }

// Allows reports whether a mask holds token.
func Allows(mask []uint64, token int32) bool {
	i := int(token) >> 6
	return token >= 0 && i < len(mask) && mask[i]>>(uint(token)&63)&1 != 0
}

// Twin follows a text by an automaton in which every repetition is written out, and knows nothing of tokens.
type Twin struct {
	m  *machine
	at *state
}

// NewTwin fails like [Compile], and where written out the form is too large.
func NewTwin(ctx context.Context, f Form, v *Vocabulary) (*Twin, error) {
	m, err := compile(&builder{rules: map[*rule]int32{}, only: &v.single, meter: newMeter(ctx, nil), unroll: true}, f, v)
	if err != nil {
		return nil, err
	}
	return &Twin{m, m.start}, nil
}

// Takes reports whether a text may go on with these bytes.
func (t *Twin) Takes(text []byte) bool {
	at := t.at
	for _, b := range text {
		at = t.m.step(at, b)
	}
	return at != dead && at != crowded
}

// Go goes on by bytes that it takes, and Ends reports whether the text may end there.
func (t *Twin) Go(text []byte) {
	for _, b := range text {
		t.at = t.m.step(t.at, b)
	}
}

func (t *Twin) Ends() bool { return t.at.end }
