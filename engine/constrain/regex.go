package constrain

import (
	"context"
	"errors"
	"regexp/syntax"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Regex returns the form of the texts that match a regular expression as a whole, with or without ^ and $. The syntax
// is Go's regexp (RE2) with Perl's classes. A pattern that exceeds the budget fails with a [*FormError].
func Regex(ctx context.Context, b *Budget, pattern string) (Form, error) {
	m := newMeter(ctx, b)
	if !m.spend(len(pattern), len(pattern)*exprSize) {
		return Form{}, m.err
	}
	if len(pattern) > maxSource {
		return Form{}, formError("the pattern has %d bytes: want at most %d", len(pattern), maxSource)
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		if e, ok := errors.AsType[*syntax.Error](err); ok {
			return Form{}, formError("the pattern %s can't be used: %s %s; look-around and references back are not supported, repetition goes up to 1000",
				clip(pattern), e.Code, clip(e.Expr))
		}
		return Form{}, formError("the pattern %s can't be used: %v", clip(pattern), err)
	}
	n, _, _ := nodeOf(re).strip()
	if n.conditional() {
		return Form{}, formError("the pattern %s has ^, $, \\b or \\B in its middle: ^ and $ are supported at its ends only, \\b and \\B not at all", clip(pattern))
	}
	return Form{n.expr(func(c class) expr { return c })}, nil
}

func nodeOf(re *syntax.Regexp) *node {
	n := &node{op: opRepeat, max: -1}
	for _, sub := range re.Sub {
		n.subs = append(n.subs, nodeOf(sub))
	}
	switch re.Op {
	case syntax.OpLiteral:
		n.op = opConcat
		for _, c := range re.Rune {
			one := class{{c, c}}
			for f := unicode.SimpleFold(c); f != c && re.Flags&syntax.FoldCase != 0; f = unicode.SimpleFold(f) {
				one = append(one, span{f, f})
			}
			n.subs = append(n.subs, &node{op: opSet, set: one})
		}
	case syntax.OpNoMatch, syntax.OpCharClass:
		n.op = opSet
		for i := 0; i+1 < len(re.Rune); i += 2 {
			n.set = append(n.set, span{re.Rune[i], re.Rune[i+1]})
		}
	case syntax.OpAnyChar:
		n.op, n.set = opSet, anyChar()
	case syntax.OpAnyCharNotNL:
		n.op, n.set = opSet, class{{'\n', '\n'}}.not()
	case syntax.OpStar:
	case syntax.OpPlus:
		n.min = 1
	case syntax.OpQuest:
		n.max = 1
	case syntax.OpRepeat:
		n.min, n.max = re.Min, re.Max
	case syntax.OpAlternate:
		n.op = opAlternate
	case syntax.OpBeginText, syntax.OpBeginLine:
		n.op = opBegin
	case syntax.OpEndText, syntax.OpEndLine:
		n.op = opEnd
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		n.op = opEdge
	case syntax.OpCapture:
		return n.subs[0]
	default:
		n.op = opConcat
	}
	return n
}

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
