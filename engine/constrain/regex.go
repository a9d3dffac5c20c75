package constrain

import (
	"context"
	"errors"
	"regexp/syntax"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Regex returns the form of the texts that match a regular expression as a whole, whether or not
// it has ^ and $ at its ends. The syntax is Go's regexp (RE2) with Perl's
// classes: no look-around, no back references, \d is 0 to 9.
//
// A pattern that exceeds the budget fails with a [*FormError].
func Regex(ctx context.Context, b *Budget, pattern string) (Form, error) {
	m := newMeter(ctx, b)
	m.spend(len(pattern), len(pattern)*exprSize)
	if m.err != nil {
		return Form{}, m.err
	}
	x, err := parseRegex(pattern, plainClass)
	return Form{x}, err
}

// encoder returns the form of a class's characters: as they are, or as in a JSON string.
type encoder func(class) expr

func plainClass(c class) expr { return c }

// parseRegex reads a pattern of a whole text. ^ and $ at its ends have no effect.
func parseRegex(pattern string, enc encoder) (expr, error) {
	if len(pattern) > maxSource {
		return nil, formError("the pattern has %d bytes: want at most %d", len(pattern), maxSource)
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		if e, ok := errors.AsType[*syntax.Error](err); ok {
			return nil, formError("the pattern %s can't be used: %s %s; look-around and references back are not supported, repetition goes up to 1000",
				clip(pattern), e.Code, clip(e.Expr))
		}
		return nil, formError("the pattern %s can't be used: %v", clip(pattern), err)
	}
	strip(&re)
	r := regexReader{encode: enc, pattern: pattern}
	x := r.read(re)
	return x, r.err
}

// strip removes ^ and $ from the ends of a pattern.
func strip(re **syntax.Regexp) {
	r := *re
	for r.Op == syntax.OpCapture {
		r = r.Sub[0]
	}
	switch r.Op {
	case syntax.OpBeginText, syntax.OpBeginLine, syntax.OpEndText, syntax.OpEndLine:
	case syntax.OpConcat:
		sub := r.Sub
		for len(sub) > 0 && (sub[0].Op == syntax.OpBeginText || sub[0].Op == syntax.OpBeginLine) {
			sub = sub[1:]
		}
		for n := len(sub) - 1; n >= 0 && (sub[n].Op == syntax.OpEndText || sub[n].Op == syntax.OpEndLine); n-- {
			sub = sub[:n]
		}
		*re = &syntax.Regexp{Op: syntax.OpConcat, Sub: sub}
		return
	default:
		return
	}
	*re = &syntax.Regexp{Op: syntax.OpEmptyMatch}
}

// regexReader makes forms of Go's syntax trees.
type regexReader struct {
	encode  encoder
	pattern string
	err     error
}

func (r *regexReader) read(re *syntax.Regexp) expr {
	switch re.Op {
	case syntax.OpNoMatch:
		return choice{}
	case syntax.OpEmptyMatch:
		return nil
	case syntax.OpLiteral:
		return r.literal(re)
	case syntax.OpCharClass:
		c := class{}
		for i := 0; i+1 < len(re.Rune); i += 2 {
			c = append(c, span{re.Rune[i], re.Rune[i+1]})
		}
		return r.encode(c)
	case syntax.OpAnyChar:
		return r.encode(anyChar())
	case syntax.OpAnyCharNotNL:
		return r.encode(class{{'\n', '\n'}}.not())
	case syntax.OpCapture:
		return r.read(re.Sub[0])
	case syntax.OpStar:
		return repeat{r.read(re.Sub[0]), 0, -1}
	case syntax.OpPlus:
		return repeat{r.read(re.Sub[0]), 1, -1}
	case syntax.OpQuest:
		return opt(r.read(re.Sub[0]))
	case syntax.OpRepeat:
		return repeat{r.read(re.Sub[0]), re.Min, re.Max}
	case syntax.OpConcat:
		s := sequence{}
		for _, sub := range re.Sub {
			s = append(s, r.read(sub))
		}
		return s
	case syntax.OpAlternate:
		c := choice{}
		for _, sub := range re.Sub {
			c = append(c, r.read(sub))
		}
		return c
	}
	if r.err == nil {
		r.err = formError("the pattern %s has %s in its middle: ^ and $ are supported at its ends only, \\b and \\B not at all", clip(r.pattern), re)
	}
	return nil
}

func (r *regexReader) literal(re *syntax.Regexp) expr {
	s := sequence{}
	for _, c := range re.Rune {
		one := class{{c, c}}
		if re.Flags&syntax.FoldCase != 0 {
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				one = append(one, span{f, f})
			}
		}
		s = append(s, r.encode(one))
	}
	return s
}

// clip quotes a client's text for an error, shortened.
func clip(text string) string {
	const most = 80
	if len(text) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strconv.Quote(text)
}
