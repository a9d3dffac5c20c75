package jinja_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/engine/jinja"
)

// pieces are templates and what Python's Jinja2 makes of them; TestPieces has it check the table where it is installed.
var pieces = []struct{ template, want string }{
	{"{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}", "b=1;a=[1, 2];C=x;"},
	{"{% for k, v in d|dictsort %}{{ k }};{% endfor %}{{ d|dictsort(reverse=true)|first }}", "a;b;C;('C', 'x')"},
	{"{{ {1: 'one', 2.5: 'x', none: 0, (1, 2): 't'}[1] }}{{ {true: 'y'}[1] }}{{ {1: 'a'} }}", "oney{1: 'a'}"},
	{"{{ '%s has %d, %5.2f%% (%r)' % ('x', 3, 2.345, 'q') }}{{ '%(b)s' % d }}", "x has 3,  2.35% ('q')1"},
	{"{{ [1] * 3 }}{{ 'ab' * 2 }}{{ (1,) * 2 }}", "[1, 1, 1]abab(1, 1)"},
	{"{% if {} %}yes{% else %}no{% endif %}{{ 'x' if [] else 'y' }}{{ 1 if 0.0 }}", "noy"},
	{"{{ dict(a=1, b=[2]) }}{{ dict(d, z=none).z }}{{ dict([('k', 'v')]) }}", "{'a': 1, 'b': [2]}None{'k': 'v'}"},
	{"{{ 'é\"' | tojson }}{{ 'é😀' | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': '<'} | tojson(sort_keys=true, separators=(',', ':')) }}", `"é\"""\u00e9\ud83d\ude00"{"a":"<","b":1}`},
	{"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7 / 2 }} {{ 2 ** 70 }}", "3 -4 2 3.0 1024 0.5 3.5 1180591620717411303424"},
	{"{{ 1 < 2 < 3 }}{{ 1 < 2 > 5 }}{{ 1 in [1] == true }}{{ 'a' < 'b' <= 'b' }}", "TrueFalseFalseTrue"},
	{"{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set (c, d) = [2, 3] %}{{ c + d }}", "1x5"},
	{"{% for i, (a, b) in [[1, 'xy'], (2, [3, 4])] %}{{ i }}{{ a }}{{ b }};{% endfor %}", "1xy;234;"},
	{"{{ 'a' 'b' \"c\" }}{{ 'x' ~ 1 ~ none ~ [1] }}", "abcx1None[1]"},
	{"{{ 'Hello'.swapcase() }}{{ 'a-b'.partition('-') }}{{ 'x'.zfill(3) }}{{ '{:>5}|{k}'.format(1, k='v') }}{{ 'ß'.upper() }}", "hELLO('a', '-', 'b')00x    1|vSS"},
	{"{{ [3, 1].index(1) }}{{ [1, 1].count(1) }}{{ d.get('zz', 'none') }}{{ d.items()|list|length }}{{ d.keys() }}", "12none3dict_keys(['b', 'a', 'C'])"},
	{"{{ nest.items is mapping }}{{ nest['items'].type }}{{ nest.get('get') }}", "Falsestring1"},
	{"{{ missing is none }}{{ none is none }}{{ missing is defined }}[{{ missing }}]{{ missing|default('d') }}{{ none|default('d') }}", "FalseTrueFalse[]dNone"},
	{"{{ rows|selectattr('tag', 'defined')|map(attribute='name')|list }}{{ rows|groupby('age')|map('first')|list }}", "['Bo', 'Cy'][1, 2, 3]"},
	{"{% if rows|selectattr('name', 'equalto', 'nobody') %}a generator is true{% endif %}", "a generator is true"},
	{"{% for i in l %}{{ loop.index }}{{ loop.last }}{{ loop.cycle('a', 'b') }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}", "1Falsea1 2Falseb32 3Truea1 "},
	{"{% for x in [1, [2, [3]]] recursive %}{% if x is number %}{{ x }}/{{ loop.depth }}{% else %}({{ loop(x) }}){% endif %}{% endfor %}", "1/1(2/2(3/3))"},
	{"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "02"},
	{"{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "221"},
	{"{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}", "3"},
	{"{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m('x') }}{{ m(1, 2, 3, k=4) }}", "xx!(){}12(3,){'k': 4}"},
	{"{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(p) m() %}{{ p }}{{ s }}{% endcall %}", "<xHello, World>"},
	{"{% filter upper %}a{{ s }}{% endfilter %}{% set v | trim %}  b {% endset %}[{{ v }}]", "AHELLO, WORLD[b]"},
	{"{{ '<b>' | e }}{{ ('<i>' | safe) + '<' }}{{ ('<i>' | safe) ~ '<' }}", "&lt;b&gt;<i>&lt;<i><"},
	{"{{ s[::-1] }}{{ t[2] }}{{ l[-2:] }}{{ (1, 2, 3)[1:] }}{{ range(9)[2:6:2] | list }}", "dlroW ,olleHa[1, 2](2, 3)[2, 4]"},
	{"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{% set j = joiner('|') %}{{ j() }}x{{ j() }}y", "abax|y"},
	{"  {% if true %}\n a\n  {% endif %}\n{{- ' b ' -}} \n c {%+ if true -%} d {%- endif %}", " a\n b c d"},
	{"{% raw %}{{ x }}{% endraw %}{# a\n comment #}\nb\r\nc\r", "{{ x }}b\nc"},
	{"{{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 1.0 }} {{ 3 * 1.0 }} {{ h }} {{ big }}", "1e+16 1000000000000000.0 1e-05 0.30000000000000004 1.0 3.0 1e+16 12345678901234567890"},
	{"{{ ['a\\n', \"it's\", 'é', '\\u200b'] }}", "['a\\n', \"it's\", 'é', '\\u200b']"},
	{"{{ '{:012_x}|{:,}|{:08.2f}|{:^7}|{:<+5d}'.format(big, 1234567, -1.5, 'ab', 3) }}", "ab54_a98c_eb1f_0ad2|1,234,567|-0001.50|  ab   |+3   "},
	{"{{ strftime_now('%d %b %Y|%-d|%H:%M') }}", "04 Jul 2025|4|09:05"},
}

func TestLanguage(t *testing.T) {
	for _, p := range pieces {
		got, _ := ours(t, p.template, fuzzVariables)
		if got.Text == nil || *got.Text != p.want {
			t.Errorf("%s\n got %v\nwant text: %s", p.template, got, p.want)
		}
	}
}

// TestPieces has Python check what TestLanguage wants.
func TestPieces(t *testing.T) {
	o := newOracle(t)
	for _, p := range pieces {
		if got := o.render(t, p.template, fuzzVariables); got.Text == nil || *got.Text != p.want {
			t.Errorf("%s\nPython %v\n  want text: %s", p.template, got, p.want)
		}
	}
}

// TestRefused: what is not supported is an error that names line and construct, when the template is parsed.
func TestRefused(t *testing.T) {
	for template, want := range map[string]string{
		"{% block a %}{% endblock %}":                   "the tag 'block' is for templates that extend others and is not supported",
		"{% do x.append(1) %}":                          "the tag 'do' is no part of chat templates and is not supported",
		"{{ '\\N{DASH}' }}":                             "escapes by name",
		"{% break %}":                                   "'break' outside a loop",
		"{% for loop in x %}{% endfor %}":               "can't assign to the special variable 'loop'",
		"{% set 1 = 2 %}":                               "can't assign to this expression",
		"{{ f(a=1, 2) }}":                               "arguments of a call are in the wrong order",
		"{% macro f(a=1, b) %}{% endmacro %}":           "the parameter 'b' has no default",
		"{% if x %}{% else %}{% elif y %}{% endif %}":   "unknown tag 'elif'",
		"{{ x | }}":                                     "expected 'name', found '}}'",
		"{# open":                                       "a comment has no end",
		"{% raw %}":                                     "a raw block has no end",
		"{{ 'open }}":                                   "a string has no end",
		"{{ a ! b }}":                                   "unexpected character '!'",
		"{{ (a] }}":                                     "unexpected ']'",
		strings.Repeat("{% if x %}", 300):               "nest deeper than 200",
		"{{ " + strings.Repeat("[", 300):                "nest deeper than 200",
		"{{ x" + strings.Repeat(".a", 3000) + " }}":     "more than 2000 operators in a row",
		"{{ x" + strings.Repeat("|upper", 3000) + " }}": "more than 2000 operators in a row",
	} {
		_, err := jinja.Parse(template)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%.60s: got %v, want %q", template, err, want)
		}
	}
}

// TestNeverReached: what is not supported matters only where a rendering comes to it.
func TestNeverReached(t *testing.T) {
	parsed, err := jinja.Parse("{% if false %}{{ x | from_json }}{{ x is weird }}{{ f() }}{{ 'x'.encode() }}{{ lipsum() }}{% endif %}{{ [] | map('weird') | list }}a")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parsed.Render(t.Context(), nil, jinja.Options{}); err != nil || got != "[]a" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestFailures: what Python raises is an error with a line, and so is what is not supported.
func TestFailures(t *testing.T) {
	for template, want := range map[string]string{
		"a\nb {{ x | urlize }}":                       "line 2: the filter 'urlize' is not supported",
		"\n{% filter weird %}{% endfilter %}":         "line 2: the filter 'weird' is not supported",
		"{{ s is weird }}":                            "line 1: the test 'weird' is not supported",
		"{{ l | map('weird') | list }}":               "the filter 'weird' is not supported",
		"{{ l | selectattr('a', 'weird') | list }}":   "the test 'weird' is not supported",
		"{{ s.encode('utf-8') }}":                     "the attribute 'encode' of 'str' objects is not supported",
		"\n{{ lipsum() }}":                            "line 2: 'lipsum' makes random text and is not supported",
		"{{ self.title() }}":                          "'self' is for templates that extend others and is not supported",
		"\n\n{{ missing.a }}":                         "line 3: 'missing' is undefined",
		"{{ d.zz.a }}":                                "'dict object' has no attribute 'zz'",
		"{{ 1 + 'a' }}":                               "unsupported operand types for +: 'int' and 'str'",
		"{{ 'a' < 1 }}":                               "'<' can't compare 'str' and 'int'",
		"{{ 1 / 0 }}{{ 1 % 0 }}":                      "division by zero",
		"{{ {[]: 1} }}":                               "unhashable type: 'list'",
		"{% set a, b = [1] %}":                        "not enough values to unpack",
		"{% for a in 1 %}{% endfor %}":                "'int' object is not iterable",
		"{{ l.append(1) }}":                           "unsafe",
		"{{ ''.__class__.__mro__ }}":                  "unsafe",
		"{{ '{0.__class__.__mro__}'.format(1) }}":     "unsafe",
		"{{ [missing] | tojson }}":                    "not JSON serializable",
		"{{ rows | map('length') | length }}":         "object of type 'generator' has no len()",
		"{{ 2 ** 99999 }}":                            "more than 14000 bits is not supported",
		"{{ s.upper }}":                               "the text of a 'function' object is not supported",
		"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}": "takes not more than 1 arguments",
		"{{ '%d' % 'x' }}":                            "%d format: a number is required, not str",
	} {
		got, _ := ours(t, template, fuzzVariables)
		if !strings.Contains(got.Error, want) || !strings.HasPrefix(got.Error, "line ") {
			t.Errorf("%s: got %v, want an error with %q", template, got, want)
		}
	}
}

// TestTogether renders one template from many goroutines; it means most under -race.
func TestTogether(t *testing.T) {
	tmpl, err := jinja.Parse("{% set c = cycler(1, 2) %}{% for k, v in d|dictsort %}{{ k }}{{ c.next() }}{% endfor %}{{ rows|map(attribute='name')|join }}")
	if err != nil {
		t.Fatal(err)
	}
	vars, err := variablesOf(fuzzVariables)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := tmpl.Render(t.Context(), vars, jinja.Options{}); err != nil || got != "a1b2C1BoalCy" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wg.Wait()
}

// FuzzRender: whatever a template holds, parsing and rendering end, with an error of their own kind.
func FuzzRender(f *testing.F) {
	for _, p := range pieces {
		f.Add(p.template)
	}
	for _, source := range attacks {
		f.Add(source)
	}
	vars, err := variablesOf(fuzzVariables)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := jinja.Parse(source)
		if err == nil {
			_, err = tmpl.Render(t.Context(), vars, jinja.Options{Now: now, Budget: jinja.Budget{Steps: 100_000, Memory: 8 << 20}})
		}
		if err != nil && strings.Contains(err.Error(), "internal fault") {
			t.Errorf("%q: %v", source, err)
		}
	})
}
