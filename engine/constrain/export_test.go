package constrain

import "context"

// JSONValue is any JSON value.
func JSONValue() Form { return Form{newJSONRules().value} }

// Allows reports whether a mask holds token.
func Allows(mask []uint64, token int32) bool {
	i := int(token) >> 6
	return token >= 0 && i < len(mask) && mask[i]>>(uint(token)&63)&1 != 0
}

// Twin follows a text with an automaton in which every repetition is written out, without tokens.
type Twin struct {
	m  *machine
	at *state
}

// NewTwin fails like [Compile], and if the form is too large when written out.
func NewTwin(ctx context.Context, f Form, v *Vocabulary) (*Twin, error) {
	m, err := compile(&builder{rules: map[*rule]int32{}, only: &v.single, meter: newMeter(ctx, nil), unroll: true}, f, v)
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
