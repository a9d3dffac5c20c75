package jinja_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestExpressions compares generated templates with Python's Jinja2. ROUSE_EXPRESSIONS=N generates N of them, from a
// seed that the test prints. By default it generates a few, always the same.
func TestExpressions(t *testing.T) {
	count, seed := 3000, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("ROUSE_EXPRESSIONS")); err == nil {
		count, seed = n, rand.Uint64()
		t.Logf("seed %d", seed)
	}
	o := newOracle(t)
	var texts, errs, refused, wrong int
	for i := range count {
		g := &writer{Rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		source := g.template()
		want := o.render(t, source, fuzzVariables)
		got, limit := ours(t, source, fuzzVariables)
		switch {
		case limit != nil || strings.Contains(got.Error, "not supported"), strings.Contains(got.Error, "'dict_"): // refused with an error, such as views of dicts as sets
			refused++
			continue
		case want.Text != nil:
			texts++
		default:
			errs++
		}
		if !same(want, got) && !strings.Contains(want.Error, " at 0x") {
			if wrong++; wrong <= 40 {
				t.Errorf("%s\n%s", source, difference(want, got))
			}
		}
	}
	t.Logf("%d texts, %d errors in both, %d refused here; %d differ", texts, errs, refused, wrong)
	if refused > count/10 {
		t.Errorf("%d of %d are refused here", refused, count)
	}
}

const fuzzVariables = `{"s": "Hello, World", "t": "  añb\tç\n漢字 x ", "e": "", "q": "it's \"q\" <b>&", "n": 7, "z": 0, "neg": -3, "big": 12345678901234567890,
 "f": 2.5, "g": -0.125, "h": 1e16, "y": true, "no": false, "nil": null, "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "mix": [1, "a", null, 2.0, [1], {"k": 1}],
 "el": [], "d": {"b": 1, "a": [1, 2], "C": "x"}, "ed": {}, "nest": {"items": {"type": "string"}, "get": 1, "x": {"y": [{"z": "deep"}]}},
 "rows": [{"name": "Bo", "age": 3, "tag": "x"}, {"name": "al", "age": 1}, {"name": "Cy", "age": 2, "tag": "X"}]}`

// writer writes random templates.
type writer struct {
	*rand.Rand
	locals []string
}

func (g *writer) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *writer) name() string {
	if len(g.locals) > 0 && g.IntN(3) == 0 {
		return g.locals[g.IntN(len(g.locals))]
	}
	return g.one("s", "t", "e", "q", "n", "z", "neg", "big", "f", "g", "h", "y", "no", "nil", "l", "w", "mix", "el", "d", "ed", "nest", "rows", "missing", "s", "n", "l", "d", "rows")
}

func (g *writer) literal() string {
	return g.one("1", "0", "2", "-1", "3.5", "1e3", "'a'", "\"b'c\"", "'x\\ny'", "'é'", "''", "true", "None", "none", "[1, 2]", "(1, 'a')", "(1,)", "()",
		"{'a': 1, 2: 'b'}", "{}", "[]", "'a' 'b'", "'%s-%s'", "'%d'", "'%5.2f|'", "'%r'", "'Hello'", "', '", "range(3)", "dict(a=1, b=[2])", "1.0", "100", "255")
}

func (g *writer) expr(depth int) string {
	if depth <= 0 {
		if g.IntN(2) == 0 {
			return g.name()
		}
		return g.literal()
	}
	e := func() string { return g.expr(depth - 1 - g.IntN(2)) }
	switch g.IntN(18) {
	case 0:
		return e() + g.one(" + ", " - ", " * ", " / ", " // ", " % ", " ~ ", "+", "-", "~") + e()
	case 1:
		return e() + " + " + g.one("0", "1", "2.5", "-1", "'x'", "[1]")
	case 2:
		return e() + g.one(" == ", " != ", " < ", " <= ", " > ", " >= ", " in ", " not in ") + e()
	case 3:
		return e() + " < " + e() + g.one(" <= ", " == ", " > ", " in ", " != ") + e()
	case 4:
		return e() + g.one(" and ", " or ") + e()
	case 5:
		return g.one("not ", "-", "+", "not not ", "- ") + e()
	case 6:
		return "(" + e() + " if " + e() + g.one(" else "+e(), "") + ")"
	case 7:
		return "(" + e() + ")" + g.one("[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[-2:]", "[1:3:2]", "["+e()+"]", "['a']", ".a", ".0", ".items", ".x.y", "[none:2]", "['items']")
	case 8, 9, 10:
		return g.filtered(e())
	case 11:
		return g.tested(e())
	case 12, 13:
		return g.called(e())
	case 16:
		return "(" + g.formatted() + ")"
	case 14:
		return g.one("[", "(") + e() + ", " + e() + "]"
	case 15:
		return "{" + g.one("'k'", "1", "none", "true", "2.0") + ": " + e() + ", 'l': " + e() + "}"
	}
	return "(" + e() + ")"
}

// typed returns a value of a kind, most of the time of the kind of.
func (g *writer) typed(kind, of string) string {
	if g.IntN(4) == 0 {
		return of
	}
	switch kind {
	case "str":
		return g.one("s", "t", "e", "q", "s ~ t", "'Hello'", "'a,b,,c'", "(s | upper)", "'%s|%s'", "'x' * 3", "rows[0].name", "'ǅ ß İ ΑΣ'", "'1_0'", "' 12 '", "'-3.7'", "'ff'", "q[1:]", "s.lower()")
	case "list":
		return g.one("l", "w", "el", "[1, 2.0, true]", "(l + [7])", "range(5)", "(1, 2, 2)", "(l | sort)", "w[1:]", "d.values()", "('a', 'B')", "(w | map('upper'))", "'abc'")
	case "rows":
		return g.one("rows", "rows[1:]", "(rows | reverse)", "(rows | list)", "[rows[0]]", "rows + rows")
	case "dict":
		return g.one("d", "ed", "nest", "rows[0]", "dict(d, z=1)", "{2: 'b', 1: 'a'}", "nest.x", "nest['items']")
	case "num":
		return g.one("n", "z", "neg", "f", "g", "h", "y", "1.005", "2.675", "(n / 3)", "1234567", "big", "0.5", "1e-7")
	}
	return of
}

// piece returns a filter or method and the kind that it applies to.
func (g *writer) piece(pieces map[string][]string, kinds ...string) (kind, text string) {
	kind = g.one(kinds...)
	return kind, g.one(pieces[kind]...)
}

func (g *writer) filtered(of string) string {
	kind, f := g.piece(filterPieces, "str", "list", "rows", "dict", "num", "any")
	of = g.typed(kind, of)
	return g.one("(", "") + of + g.one(" | ", "|") + f
}

var filterPieces = map[string][]string{
	"any":  {"default", "default('d')", "default('d', true)", "d(1, boolean=true)", "string", "list", "length", "count", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)", "tojson(true)", "tojson(indent=1, sort_keys=true)", "first", "last", "safe", "string|length", "safe ~ '<'", "safe + '<'", "length > 1", "tojson|length", "list|tojson", "upper", "trim", "int", "float", "int(5)", "join", "reverse", "items|list", "truncate(5)", "('x'|safe)"},
	"str":  {"capitalize", "lower", "upper", "title", "trim", "trim('x')", "trim(chars='lo')", "indent", "indent(2)", "indent(2, true)", "indent('> ', first=true, blank=true)", "int", "float", "float(7)", "replace('l', 'L')", "replace('a', '', 1)", "replace('', '.')", "reverse", "truncate(5)", "truncate(6, true, '.', 0)", "truncate(8, end='', leeway=0)", "format(1, 2)", "format(b=3)", "list", "length", "first", "last", "unique|list", "sort|join", "max", "join('-')", "map('upper')|join", "select('in', 'aeiou')|list"},
	"list": {"first", "last", "length", "list", "join", "join(', ')", "join(d=1)", "map('upper')|list", "map('int')|sum", "map('string')|join('/')", "map('default', 'x')|list", "map('float')|max", "max", "max(true)", "min", "reject('odd')|list", "select('string')|list", "select|list", "select('in', l)|list", "select('gt', 1)|first", "reverse", "reverse|list", "sort", "sort(true)", "sort(case_sensitive=true)", "sort(reverse=true)|first", "sum", "sum(start=10)", "unique|list", "unique(true)|list", "tojson", "string", "map('upper')", "map('length')|list", "reject('none')|map('tojson')|join", "map(attribute=0)|list", "count"},
	"rows": {"join('-', attribute='name')", "map(attribute='name')|list", "map(attribute='tag', default='none')|join('/')", "map(attribute='name.0')|list", "max(attribute='age')", "min(attribute='name')", "rejectattr('tag')|list", "selectattr('tag', 'defined')|list", "selectattr('age', 'gt', 1)|map(attribute='name')|join", "sort(attribute='age')", "sort(attribute='name', case_sensitive=true)|map(attribute='name')|list", "sum(attribute='age')", "unique(attribute='tag')|list", "selectattr('name', 'in', ['Bo', 'Cy'])|list|length", "map('items')|map('list')|list", "selectattr('tag', 'equalto', 'x')|first", "rejectattr('age', 'odd')|map(attribute='age')|list", "tojson(indent=2)", "last", "map('tojson')|join('; ')"},
	"dict": {"dictsort", "dictsort(true)", "dictsort(by='value')", "dictsort(reverse=true)", "dictsort(false, 'key', true)|map('first')|join", "items", "items|list", "items|map('last')|list", "items|first", "list", "length", "tojson", "tojson(sort_keys=true, indent=2)", "string", "first", "last", "join(',')", "sort", "map('upper')|list", "reverse|list"},
	"num":  {"float", "int", "string", "tojson", "int|string", "default(3)"},
}

var methodPieces = map[string][]string{
	"str":  {"upper()", "lower()", "strip()", "strip('H d')", "lstrip()", "rstrip('\\n x')", "split()", "split(',')", "split('l', 1)", "split(none, 1)", "split(sep=',', maxsplit=1)", "rsplit(none, 1)", "rsplit('l', 1)", "rsplit(',')", "splitlines()", "replace('l', 'L')", "replace('', '-', 3)", "replace('o', '', 1)", "startswith('H')", "startswith(('x', 'H'))", "endswith('d')", "find('o')", "rfind('o')", "count('l')", "count('')", "title()", "capitalize()", "isdigit()", "join(w)", "join(['x', 'y'])", "join('ab')", "removeprefix('He')", "removesuffix('ld')", "nothing()"},
	"list": {"append(1)", "pop()", "sort()", "keys()"},
	"dict": {"get('a')", "get('zz')", "get('zz', 5)", "get(1)", "keys()", "values()", "items()", "keys()|list", "items()|list", "values()|list|tojson", "update({})", "pop('a')", "a()", "keys()|join(',')", "items()|sort", "items()|length", "get('items')", "items().x"},
	"any":  {"upper()", "keys()", "get('a')", "nothing()", "append(1)"},
}

// formatted returns % with values.
func (g *writer) formatted() string {
	spec := g.one("", "5", "-7", "+", "05", " ", ".2", "08", "-9", ".0")
	conv := g.one("s", "d", "i", "f", "r")
	arg := g.one("n", "neg", "f", "g", "h", "s", "big", "l", "none", "missing", "true", "1234.5678", "0.00001", "'é'", "65", "(n, f)", "(s,)", "d")
	return "'%" + spec + conv + g.one("", " %s", "%%") + "' % " + g.one(arg, "("+arg+", "+g.one("n", "s")+")")
}

func (g *writer) tested(of string) string {
	return "(" + of + ") is " + g.one("", "not ") + g.one("defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence", "iterable",
		"odd", "even", "divisibleby 2", "divisibleby(3)", "in l", "in [1, 2, 'a']", "in 'abc'", "eq 1", "equalto('a')", "ne 2", "gt 1", "ge 1", "lessthan 5", "le(7)")
}

func (g *writer) called(of string) string {
	kind, m := g.piece(methodPieces, "str", "str", "str", "dict", "list", "any")
	of = g.typed(kind, of)
	return g.one("(", "(", "") + of + ")." + m
}

// balance removes or adds brackets until they match.
func balance(s string) string {
	var open []byte
	var out strings.Builder
	var quote byte
	for i := range len(s) {
		c := s[i]
		switch {
		case quote != 0:
			if c == quote && s[i-1] != '\\' {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '[' || c == '{':
			open = append(open, map[byte]byte{'(': ')', '[': ']', '{': '}'}[c])
		case c == ')' || c == ']' || c == '}':
			if len(open) == 0 {
				continue
			}
			c = open[len(open)-1]
			open = open[:len(open)-1]
		}
		out.WriteByte(c)
	}
	for i := len(open) - 1; i >= 0; i-- {
		out.WriteByte(open[i])
	}
	return out.String()
}

// value returns an expression with balanced brackets.
func (g *writer) value(depth int) string { return balance(g.expr(depth)) }

func (g *writer) open() string  { return g.one("{%", "{%-", "{%+", "{% ") + " " }
func (g *writer) close() string { return " " + g.one("%}", "-%}", "+%}", "%}\n", "%}\n  ") }
func (g *writer) text() string {
	return g.one("", " ", "\n", "  \n ", "x", " y\n", "\t", "{# c #}", "{#- c -#} ", "{# c #}\n", "\r\n", "{% raw %}{{ r }}{% endraw %}\n", "{", "%}", "{ {")
}

// template returns an output, or statements around outputs.
func (g *writer) template() string {
	if g.IntN(3) > 0 {
		return "{{ " + g.value(3) + " }}"
	}
	return g.block(3)
}

func (g *writer) block(depth int) string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		b.WriteString(g.text())
		b.WriteString(g.statement(depth))
	}
	return b.String() + g.text()
}

func (g *writer) statement(depth int) string {
	if depth <= 0 {
		return g.one("{{", "{{-") + " " + g.value(1) + " " + g.one("}}", "-}}", "}}\n")
	}
	tag := func(format string, a ...any) string { return g.open() + fmt.Sprintf(format, a...) + g.close() }
	locals := g.locals
	defer func() { g.locals = locals }()
	with := func(names ...string) { g.locals = append(append([]string{}, g.locals...), names...) }
	switch g.IntN(10) {
	case 0, 1:
		iter := g.value(1)
		target := g.one("i", "i", "i, j", "i, (j, k)", "(i, j)")
		extra := g.one("", "", " if i", " if "+g.value(1), " if i is defined")
		with("i", "j", "loop", "loop.index", "loop.last", "loop.length", "loop.revindex0", "loop.previtem", "loop.nextitem", "loop.first")
		inner := g.block(depth-1) + g.one("", "", g.open()+"if loop.index > 1"+g.close()+g.open()+g.one("break", "continue")+g.close()+g.open()+"endif"+g.close())
		return tag("for %s in %s%s", target, g.one(iter, "l", "rows", "d.items()", "d|dictsort", "nest|items", "w", "s[:3]"), extra) + inner + g.one("", tag("else")+g.block(depth-1)) + tag("endfor")
	case 2:
		return tag("if %s", g.value(2)) + g.block(depth-1) + g.one("", tag("elif %s", g.value(1))+g.block(depth-1)) + g.one("", tag("else")+g.block(depth-1)) + tag("endif")
	case 3:
		s := tag("set %s = %s", g.one("v", "v", "v, u", "s"), g.value(2))
		with("v", "u")
		return s + g.block(depth-1) + "{{ v }}"
	case 4:
		return tag("set v%s", g.one("", " | upper", " | trim | length")) + g.block(depth-1) + tag("endset") + "{{ v }}|{{ v|length }}"
	case 5:
		s := tag("macro f(a, b=%s)", g.value(1))
		with("a", "b", "varargs", "kwargs", "caller()", "loop")
		return s + g.block(depth-1) + tag("endmacro") + "{{ f(" + g.one("", "1", "1, 2", "b=3", "a=1, c=2", "1, 2, 3", "*l", "n, *w, c=1") + ") }}"
	case 6:
		return "{% macro g(x) %}<{{ caller(" + g.one("", "x", "1, 2") + ") }}>{% endmacro %}" + tag("call%s g(%s)", g.one("", "(p)", "(p, q=2)"), g.value(1)) + g.block(depth-1) + "{{ p }}" + tag("endcall")
	case 7:
		return tag("filter %s", g.one("upper", "trim", "replace('a', 'b')", "indent(2)|upper", "length")) + g.block(depth-1) + tag("endfilter")
	case 8:
		return "{% set ns = namespace(c=0, d=" + g.value(1) + ") %}{% for i in l %}{% set ns.c = ns.c + i %}" + tag("set ns.%s = %s", g.one("d", "e", "c"), g.value(1)) + "{% endfor %}{{ ns.c }}{{ ns.d }}{{ ns.zz }}"
	}
	return tag("generation") + g.block(depth-1) + tag("endgeneration")
}
