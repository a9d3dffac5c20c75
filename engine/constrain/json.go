package constrain

import "fmt"

// JSON returns the form of any JSON object, as in OpenAI's JSON mode. White space is one blank, or a line feed and
// some indentation, in the usual places, so a text can't be all blanks.
func JSON() Form { return Form{newJSONRules().object} }

const (
	maxDigits    = 18
	maxFraction  = 17
	maxIndent    = 40
	exponentSize = 2
)

type jsonRules struct {
	blank, text, integer, number *rule
	value, object, array         *rule
}

func newJSONRules() *jsonRules {
	r := &jsonRules{
		blank:   &rule{name: "blank", body: opt(oneOf(literal(" "), seq(literal("\n"), repeat{class{{' ', ' '}, {'\t', '\t'}}, 0, maxIndent})))},
		text:    &rule{name: "string", body: quoted(repeat{jsonChar(), 0, -1})},
		integer: &rule{name: "integer", body: seq(opt(literal("-")), digits())},
		number:  &rule{name: "number"},
		value:   &rule{name: "value"},
		object:  &rule{name: "object"},
		array:   &rule{name: "array"},
	}
	fraction := seq(literal("."), repeat{digit(), 1, maxFraction})
	exponent := seq(class{{'e', 'e'}, {'E', 'E'}}, opt(class{{'+', '+'}, {'-', '-'}}), repeat{digit(), 1, exponentSize})
	r.number.body = seq(r.integer, opt(fraction), opt(exponent))
	r.value.body = oneOf(r.object, r.array, r.text, r.number, literal("true"), literal("false"), literal("null"))
	member := seq(r.text, literal(":"), r.blank, r.value)
	r.object.body = r.list("{", member, 0, -1, "}")
	r.array.body = r.list("[", r.value, 0, -1, "]")
	return r
}

// braces puts x, which is not empty, between a pair; with empty, it may be left out.
func (r *jsonRules) braces(open string, x expr, empty bool, shut string) expr {
	inner := choice{seq(r.blank, x, r.blank)}
	if empty {
		inner = append(inner, nil)
	}
	return seq(literal(open), inner, literal(shut))
}

// list is min to max times x; a negative max means no limit.
func (r *jsonRules) list(open string, x expr, min, max int, shut string) expr {
	if max == 0 {
		if min > 0 {
			return choice{}
		}
		return literal(open + shut)
	}
	rest := repeat{seq(literal(","), r.blank, x), 0, -1}
	if min > 0 {
		rest.min = min - 1
	}
	if max > 0 {
		rest.max = max - 1
	}
	return r.braces(open, seq(x, rest), min == 0, shut)
}

func digit() class { return class{{'0', '9'}} }

func digits() expr {
	return oneOf(literal("0"), seq(class{{'1', '9'}}, repeat{digit(), 0, maxDigits - 1}))
}

func quoted(x expr) expr { return seq(literal(`"`), x, literal(`"`)) }

var special = class{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}

// jsonChar returns the form of one character of a JSON string in any spelling. Escaped surrogates come in pairs only.
func jsonChar() expr {
	hex := class{{'0', '9'}, {'a', 'f'}, {'A', 'F'}}
	d := class{{'d', 'd'}, {'D', 'D'}}
	low := seq(literal(`\u`), d, class{{'c', 'f'}, {'C', 'F'}}, hex, hex)
	code := oneOf(
		seq(class{{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}, hex, hex, hex),
		seq(d, class{{'0', '7'}}, hex, hex),
		seq(d, class{{'8', '9'}, {'a', 'b'}, {'A', 'B'}}, hex, hex, low),
	)
	return oneOf(
		special.not(),
		seq(literal(`\`), oneOf(class{{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}}, seq(literal("u"), code))),
	)
}

// jsonClass returns the form of a class in a JSON string, each character in one spelling.
func jsonClass(c class) expr {
	x := choice{c.and(special.not())}
	for _, s := range c.and(special) {
		for r := s.lo; r <= s.hi; r++ {
			x = append(x, literal(jsonEscape(r)))
		}
	}
	if len(x) == 1 {
		return x[0]
	}
	return x
}

func jsonEscape(r rune) string {
	switch r {
	case '"', '\\':
		return `\` + string(r)
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// jsonText spells a text as jsonClass does.
func jsonText(text string) string {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if special.has(r) {
			out = append(out, jsonEscape(r)...)
		} else {
			out = append(out, string(r)...)
		}
	}
	return string(out)
}
