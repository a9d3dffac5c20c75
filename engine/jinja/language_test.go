package jinja_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/engine/jinja"
)

// pieces are templates and the output of Python's Jinja2. TestPieces checks the table with Python where it is installed.
var pieces = []struct{ template, want string }{
	{"{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}", "b=1;a=[1, 2];C=x;"},
	{"{% for k, v in d|dictsort %}{{ k }};{% endfor %}{{ d|dictsort(reverse=true)|first }}", "a;b;C;('C', 'x')"},
	{"{{ {1: 'one', 2.5: 'x', none: 0}[1.0] }}{{ {true: 'y'}[1] }}{{ {1: 'a'} }}", "oney{1: 'a'}"},
	{"{{ '%s has %d, %5.2f%% (%r)' % ('x', 3, 2.345, 'q') }}", "x has 3,  2.35% ('q')"},
	{"{{ [1] * 3 }}{{ 'ab' * 2 }}{{ (1,) * 2 }}", "[1, 1, 1]abab(1, 1)"},
	{"{% if {} %}yes{% else %}no{% endif %}{{ 'x' if [] else 'y' }}{{ 1 if 0.0 }}", "noy"},
	{"{{ dict(a=1, b=[2]) }}{{ dict(d, z=none).z }}{{ dict([('k', 'v')]) }}", "{'a': 1, 'b': [2]}None{'k': 'v'}"},
	{"{{ 'é\"' | tojson }}{{ 'é😀' | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': '<'} | tojson(sort_keys=true, separators=(',', ':')) }}", `"é\"""\u00e9\ud83d\ude00"{"a":"<","b":1}`},
	{"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 7.5 / 2 }}", "3 -4 2 3.5 3.75"},
	{"{{ 1 < 2 < 3 }}{{ 1 < 2 > 5 }}{{ 1 in [1] == true }}{{ 'a' < 'b' <= 'b' }}", "TrueFalseFalseTrue"},
	{"{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set (c, d) = [2, 3] %}{{ c + d }}", "1x5"},
	{"{% for i, (a, b) in [[1, 'xy'], (2, [3, 4])] %}{{ i }}{{ a }}{{ b }};{% endfor %}", "1xy;234;"},
	{"{{ 'a' 'b' \"c\" }}{{ 'x' ~ 1 ~ none ~ [1] }}", "abcx1None[1]"},
	{"{{ 'a-b-c'.rsplit('-', 1) }}{{ 'abcb'.rfind('b') }}{{ 'ab'.removeprefix('a') }}{{ 'ß'.upper() }}", "['a-b', 'c']3bSS"},
	{"{{ d.get('zz', 'none') }}{{ d.items()|list|length }}{{ d.keys() }}", "none3dict_keys(['b', 'a', 'C'])"},
	{"{{ nest.items is mapping }}{{ nest['items'].type }}{{ nest.get('get') }}", "Falsestring1"},
	{"{{ missing is none }}{{ none is none }}{{ missing is defined }}[{{ missing }}]{{ missing|default('d') }}{{ none|default('d') }}", "FalseTrueFalse[]dNone"},
	{"{{ rows|selectattr('tag', 'defined')|map(attribute='name')|list }}{{ rows|sort(attribute='age')|map(attribute='age')|list }}", "['Bo', 'Cy'][1, 2, 3]"},
	{"{% if rows|selectattr('name', 'equalto', 'nobody') %}a generator is true{% endif %}", "a generator is true"},
	{"{% for i in l %}{{ loop.index }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}", "1False1 2False32 3True1 "},
	{"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "02"},
	{"{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "221"},
	{"{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}", "3"},
	{"{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m('x') }}{{ m(1, 2, 3, k=4) }}", "xx!(){}12(3,){'k': 4}"},
	{"{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(p) m() %}{{ p }}{{ s }}{% endcall %}", "<xHello, World>"},
	{"{% filter upper %}a{{ s }}{% endfilter %}{% set v | trim %}  b {% endset %}[{{ v }}]", "AHELLO, WORLD[b]"},
	{"{{ ('<i>' | safe) + '<' }}{{ ('<i>' | safe) ~ '<' }}{{ '\"' + ('<i>' | safe) }}", "<i>&lt;<i><&#34;<i>"},
	{"{{ s[::-1] }}{{ t[2] }}{{ l[-2:] }}{{ (1, 2, 3)[1:] }}{{ range(2, 6, 2) | list }}", "dlroW ,olleHa[1, 2](2, 3)[2, 4]"},
	{"  {% if true %}\n a\n  {% endif %}\n{{- ' b ' -}} \n c {%+ if true -%} d {%- endif %}", " a\n b c d"},
	{"{% raw %}{{ x }}{% endraw %}{# a\n comment #}\nb\r\nc\r", "{{ x }}b\nc"},
	{"{{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 1.0 }} {{ 3 * 1.0 }} {{ h }} {{ big }}", "1e+16 1000000000000000.0 1e-05 0.30000000000000004 1.0 3.0 1e+16 12345678901234567890"},
	{"{{ ['a\\n', \"it's\", 'é', '\\u200b'] }}", "['a\\n', \"it's\", 'é', '\\u200b']"},
	{"{% for i in l if i > 1 %}{{ loop.length }}{{ loop.revindex }}{{ loop.last }}{% endfor %}{% for i in l|map('string') %}{{ loop.last }}{{ loop.length }}{% endfor %}", "22False21TrueFalse3False3True3"},
	{"{% for a, b in [[1, 2], [3, 4]] if a %}{{ loop.previtem }}{% endfor %}", "(1, 2)"},
	{"{{ big == big }}{{ big < 1e30 }}{{ big > n }}{{ {big: 1}[big] }}{{ [big] }}{{ big | tojson }}{{ big is integer }}{{ 1e19|int }}", "TrueTrueTrue1[12345678901234567890]12345678901234567890True10000000000000000000"},
	{"{{ '12' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ true | int }} {{ ' -5 ' | int }} {{ 'a_1' | int }} {{ '1e3' | float }} {{ '-+5' | int }}", "12 7 3 1 -5 0 1000.0 0"},
	{"{{ '12'.isdigit() }}{{ 'é1'.isdigit() }}{{ '١'.isdigit() }}{{ 'añb'[-2] }}{{ 'añb'[::-1] }}{{ 'a b'|title }}{{ 'ǆ ﬁ ß'.title() }}", "TrueFalseTrueñbñaA Bǅ Fi Ss"},
	{"{{ l|min }}{{ l|max }}{{ l|sum }}{{ rows|max(attribute='age') }}{{ [2, 1, 2]|unique|list }}{{ w|sort(case_sensitive=true) }}", "136{'name': 'Bo', 'age': 3, 'tag': 'x'}[2, 1]['A', 'a', 'b', 'c']"},
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

// TestPieces checks the expected outputs of TestLanguage with Python.
func TestPieces(t *testing.T) {
	o := newOracle(t)
	for _, p := range pieces {
		if got := o.render(t, p.template, fuzzVariables); got.Text == nil || *got.Text != p.want {
			t.Errorf("%s\nPython %v\n  want text: %s", p.template, got, p.want)
		}
	}
}

// TestRefused checks that an unsupported construct is an error of Parse that names line and construct.
func TestRefused(t *testing.T) {
	for template, want := range map[string]string{
		"{% break %}":                                   "line 1: 'break' outside a loop",
		"{% for loop in x %}{% endfor %}":               "can't assign to 'loop'",
		"{% set 1 = 2 %}":                               "expected a name, found a number",
		"{{ f(a=1, 2) }}":                               "arguments of a call are in the wrong order",
		"{% macro f(a=1, b) %}{% endmacro %}":           "the parameter 'b' has no default",
		"{% macro f(caller) %}{% endmacro %}":           "the parameter 'caller' can't be used here",
		"{% if x %}{% else %}{% elif y %}{% endif %}":   "unknown tag 'elif'",
		"{{ x | }}":                                     "expected a name, found '}}'",
		"{# open":                                       "a comment has no end",
		"{% raw %}":                                     "a raw block has no end",
		"{{ 'open }}":                                   "a string has no end",
		"{{ a ! b }}":                                   "unexpected character '!'",
		"{{ (a] }}":                                     "unexpected ']'",
		strings.Repeat("{% if x %}", 300):               "nest deeper than 200",
		"{{ " + strings.Repeat("[", 300):                "nest deeper than 200",
		"{{ x" + strings.Repeat(".a", 3000) + " }}":     "a tag has more than 5000 names",
		"{{ x" + strings.Repeat("|upper", 3000) + " }}": "a tag has more than 5000 names",

		"a\nb {{ x | urlize }}":                     "line 2: the filter 'urlize' is not supported",
		"{% if x %}\n{{ x | xmlattr }}{% endif %}":  "line 2: the filter 'xmlattr' is not supported",
		"{{ rows | groupby('a') }}":                 "the filter 'groupby' is not supported",
		"{{ l | batch(2) }}{{ 1 }}":                 "the filter 'batch' is not supported",
		"{{ l | map('abs') | list }}":               "the filter 'abs' is not supported",
		"{{ l | map('weird') | list }}":             "the filter 'weird' is not supported",
		"\n{% filter weird %}{% endfilter %}":       "line 2: the filter 'weird' is not supported",
		"{% set x | e %}{% endset %}":               "the filter 'e' is not supported",
		"{{ s is weird }}":                          "the test 'weird' is not supported",
		"{% if s is sameas true %}{% endif %}":      "the test 'sameas' is not supported",
		"{{ l | select('callable') }}":              "the test 'callable' is not supported",
		"{{ l | selectattr('a', 'weird') | list }}": "the test 'weird' is not supported",
		"{{ s.encode('utf-8') }}":                   "the method 'encode' is not supported",
		"{{ '{}'.format(1) }}":                      "the method 'format' is not supported",
		"{{ s.partition(',') }}{{ s.zfill(3) }}":    "the method 'partition' is not supported",
		"{{ ''.__class__.__mro__ }}":                "the attribute '__class__' is unsafe",
		"\n{{ lipsum() }}":                          "line 2: 'lipsum' is not supported",
		"{% set c = cycler('a') %}":                 "'cycler' is not supported",
		"{% block a %}{% endblock %}":               "the tag 'block' is not supported",
		"{% do x.append(1) %}":                      "the tag 'do' is not supported",
		"{% with a = 1 %}{% endwith %}":             "the tag 'with' is not supported",
		"{% for a in b recursive %}{% endfor %}":    "recursive loops are not supported",
		"{{ 2 ** 10 }}":                             "the operator '**' is not supported",
		"{{ f(**d) }}":                              "keyword arguments behind '**' are not supported",
		"{{ 12345678901234567890 }}":                "beyond 64 bits, which is not supported",
		"{{ '\\N{DASH}' }}":                         "the escape \\N is not supported",
	} {
		_, err := jinja.Parse(template)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%.60s: got %v, want %q", template, err, want)
		}
	}
}

// TestBranches checks that, as in Python, unknown filters and tests in a branch are errors only when a rendering
// reaches them. Templates of real models have such branches.
func TestBranches(t *testing.T) {
	for template, want := range map[string]string{
		"{% if no %}{{ x | from_json }}{{ x is weird }}{% endif %}a": "text: a",
		"{% if y %}b{% else %}{{ x | from_json }}{% endif %}":        "text: b",
		"{{ x | fromjson if no else 'c' }}":                          "text: c",
		"\n{% if y %}{{ s | from_json }}{% endif %}":                 "error: line 2: the filter 'from_json' is not supported",
		"{{ 'c' if no else s is weird }}":                            "error: line 1: the test 'weird' is not supported",
		"{{ x | fromjson if s | weird else 'c' }}":                   "error: parse: line 1: the filter 'weird' is not supported",
	} {
		if got, _ := ours(t, template, fuzzVariables); got.String() != want {
			t.Errorf("%s: got %v, want %s", template, got, want)
		}
	}
}

// TestFailures checks that errors of Python and unsupported features that only a rendering finds are errors with a line.
func TestFailures(t *testing.T) {
	for template, want := range map[string]string{
		"\n\n{{ missing.a }}":                                    "line 3: 'missing' is undefined",
		"{{ d.zz.a }}":                                           "'dict object' has no attribute 'zz'",
		"{{ 1 + 'a' }}":                                          "unsupported operand types for +: 'int' and 'str'",
		"{{ 'a' < 1 }}":                                          "'<' can't compare 'str' and 'int'",
		"{{ 1 / 0 }}{{ 1 % 0 }}":                                 "division by zero",
		"{{ {[]: 1} }}":                                          "unhashable type: 'list'",
		"{% set a, b = [1] %}":                                   "values to unpack: want 2, have 1",
		"{% for a in 1 %}{% endfor %}":                           "'int' object is not iterable",
		"{{ l.append(1) }}":                                      "unsafe",
		"{{ l['__class__'] }}":                                   "unsafe",
		"{{ [missing] | tojson }}":                               "not JSON serializable",
		"{{ rows | map('length') | length }}":                    "object of type 'generator' has no len()",
		"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}":            "takes not more than 1 arguments",
		"{{ '%d' % 'x' }}":                                       "%d format: a number is required, not str",
		"{{ '²'.isdigit() }}":                                    "isdigit of '²' is not supported",
		"{{ s | replace('a') }}":                                 "replace misses the argument 'new'",
		"{{ s | replace('a', 'b', old='c') }}":                   "replace got multiple values for the argument 'old'",
		"{{ s | trim(side='left') }}":                            "trim takes no keyword argument 'side'",
		"{{ s | trim('a', 'b') }}":                               "trim takes at most 1 arguments, got 2",
		"{{ s | replace('a', 'b', 1.5) }}":                       "replace wants a whole number of 64 bits, not 'float'",
		"{{ range(0) }}":                                         "the text of a 'range' object is not supported",
		"{{ range(0, 1, 0) }}":                                   "range: the step must not be zero",
		"{{ s.upper }}":                                          "the text of a 'function' object is not supported",
		"{{ l.count(1) }}":                                       "the attribute 'count' of 'list' objects is not supported",
		"{{ (s | safe).upper() }}":                               "the attribute 'upper' of 'Markup' objects is not supported",
		"{{ s | safe | trim }}":                                  "the filter 'trim' is not supported for text that went through safe",
		"{{ '%x' % 1 }}":                                         "the format '%x' is not supported",
		"{{ {(1, 2): 1} }}":                                      "a 'tuple' object as a key is not supported",
		"{{ big + 1 }}":                                          "arithmetic with numbers beyond 64 bits is not supported",
		"{{ 9223372036854775807 + 1 }}":                          "the result of + is beyond 64 bits, which is not supported",
		"{{ 7.5 // 2 }}":                                         "// of floats is not supported",
		"{{ '1_000' | int }}":                                    "is not supported",
		"{{ range(3)[1:] }}":                                     "a slice of a 'range' object is not supported",
		"{{ d.keys() == d.keys() }}":                             "comparing 'dict_keys' objects is not supported",
		"{{ l | sort(attribute='a,b') }}":                        "sort by many attributes is not supported",
		"{% for a in l %}{{ loop.depth }}{% endfor %}":           "the attribute 'depth' of 'LoopContext' objects is not supported",
		"{{ l | map(s) | list }}":                                "the filter 'Hello, World' is not supported",
		"{{ ['x', 'NaN' | float, 1.0] | last }}{{ d.fromkeys }}": "the attribute 'fromkeys' of 'dict' objects is not supported",
	} {
		got, _ := ours(t, template, fuzzVariables)
		if !strings.Contains(got.Error, want) || !strings.HasPrefix(got.Error, "line ") {
			t.Errorf("%s: got %v, want an error with %q", template, got, want)
		}
	}
}

// TestTogether renders one template from many goroutines. It is most useful with -race.
func TestTogether(t *testing.T) {
	tmpl, err := jinja.Parse("{% set c = namespace(n=0) %}{% for k, v in d|dictsort %}{% set c.n = 3 - (c.n or 2) %}{{ k }}{{ c.n }}{% endfor %}{{ rows|map(attribute='name')|join }}")
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

// FuzzRender checks for any template that parsing and rendering end, and fail only with errors of the package.
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
