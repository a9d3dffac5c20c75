package constrain

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"unicode/utf8"
)

// A form beyond these limits fails with a [*FormError].
const (
	maxNodes  = 1 << 18 // places
	maxDepth  = 200
	maxSource = 1 << 20 // bytes
)

// Form is a set of texts. The zero Form is the empty text. Forms are values and may be used in several others.
type Form struct{ x expr }

// expr is one of the types that builder.emit knows; nil is the empty text.
type expr any

type (
	literal  string
	control  int32 // a token
	class    []span
	sequence []expr
	choice   []expr // an empty choice has no text
	repeat   struct {
		x        expr
		min, max int // max < 0: no limit
	}
)

type span struct{ lo, hi rune }

// rule is a named form, which may contain itself.
type rule struct {
	name string
	body expr
}

// Text returns the form of exactly this text, which must be valid UTF-8.
func Text(text string) Form { return Form{literal(text)} }

// Token returns the form of one control token, which has no text.
func Token(id int32) Form { return Form{control(id)} }

// Sequence returns the form of the concatenation of forms.
func Sequence(forms ...Form) Form {
	var s sequence
	for _, f := range forms {
		s = append(s, f.x)
	}
	return Form{s}
}

// AnyOf returns the form of any one of the forms.
func AnyOf(forms ...Form) Form {
	c := choice{}
	for _, f := range forms {
		c = append(c, f.x)
	}
	return Form{c}
}

// Repeat returns the form of f repeated min to max times; a negative max means no limit.
func Repeat(f Form, min, max int) Form { return Form{repeat{f.x, min, max}} }

// Choice returns the form of any one of the texts. It fails if there is none, if one is empty or not UTF-8, or if
// they exceed the budget (nil means a new one). It fails with ctx's cause when ctx ends.
func Choice(ctx context.Context, b *Budget, texts ...string) (Form, error) {
	if len(texts) == 0 {
		return Form{}, formError("there is nothing to choose from: want at least one text")
	}
	m := newMeter(ctx, b)
	c := choice{}
	for i, t := range texts {
		if t == "" || !utf8.ValidString(t) {
			return Form{}, formError("choice %d is empty or not valid UTF-8", i)
		}
		if !m.spend(1+len(t)/16, 32) {
			return Form{}, m.err
		}
		c = append(c, literal(t))
	}
	return Form{c}, nil
}

func formError(format string, args ...any) error {
	return &FormError{Message: fmt.Sprintf(format, args...)}
}

func opt(x expr) expr { return repeat{x, 0, 1} }

func seq(x ...expr) expr { return sequence(x) }

func oneOf(x ...expr) expr { return choice(x) }

func anyChar() class { return class{{0, utf8.MaxRune}} }

func (c class) normal() class {
	apart := true
	for i, s := range c {
		apart = apart && s.lo <= s.hi && (i == 0 || c[i-1].hi+1 < s.lo)
	}
	if apart {
		return c
	}
	c = slices.Clone(c)
	slices.SortFunc(c, func(a, b span) int { return int(a.lo - b.lo) })
	out := c[:0]
	for _, s := range c {
		if s.lo > s.hi {
			continue
		}
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return out
}

func (c class) not() class {
	var out class
	next := rune(0)
	for _, s := range c.normal() {
		if s.lo > next {
			out = append(out, span{next, s.lo - 1})
		}
		next = s.hi + 1
	}
	if next <= utf8.MaxRune {
		out = append(out, span{next, utf8.MaxRune})
	}
	return out
}

func (c class) and(d class) class {
	var out class
	for _, a := range c.normal() {
		for _, b := range d.normal() {
			if lo, hi := max(a.lo, b.lo), min(a.hi, b.hi); lo <= hi {
				out = append(out, span{lo, hi})
			}
		}
	}
	return out
}

// has is for a normal class.
func (c class) has(r rune) bool {
	i := sort.Search(len(c), func(i int) bool { return c[i].hi >= r })
	return i < len(c) && c[i].lo <= r
}
