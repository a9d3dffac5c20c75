package jinja_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/jinja"
)

// attacks are templates that use as much as they can.
var attacks = map[string]string{
	"nested ranges":    "{% for a in range(65536) %}{% for b in range(65536) %}{% for c in range(65536) %}{% endfor %}{% endfor %}{% endfor %}",
	"text times":       "{{ 'x' * 1000000000000 }}",
	"text times 2":     "{{ 1000000000000000 * 'xy' }}",
	"list times":       "{{ ([1] * 1000000000) | length }}",
	"list doubling":    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
	"text doubling":    "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
	"shared lists":     "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
	"shared JSON":      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
	"shared equal":     "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
	"deep list":        "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
	"deep order":       "{% set ns = namespace(l=[], m=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l < ns.m }}",
	"percent":          "{{ '%600000000d' % 1 }}",
	"percent point":    "{{ '%.600000000f' % 1 }}",
	"indent":           "{{ 'a\nb' | indent(600000000) }}",
	"indents":          "{{ (('a\n' * 10000) | indent('x' * 1000000)) | length }}",
	"JSON indent":      "{{ [1] | tojson(indent=600000000) }}",
	"JSON separator":   "{{ range(9999) | list | tojson(separators=('x' * 1000000, ':')) }}",
	"join":             "{{ range(99999) | join('x' * 100000) }}",
	"replace":          "{{ ('x' * 100000).replace('', 'y' * 100000) }}",
	"replace filter":   "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
	"macro fan-out":    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
	"macro forever":    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
	"caller forever":   "{% macro f() %}{{ caller() }}{% call f() %}x{% endcall %}{% endmacro %}{% call f() %}{% endcall %}",
	"macro in field":   "{% set ns = namespace() %}{% macro f() %}{{ ns.f() }}{% endmacro %}{% set ns.f = f %}{{ ns.f() }}",
	"output":           "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
	"block output":     "{% set x %}{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}{% endset %}",
	"quadratic search": "{% set s = 'x' * 10000000 %}{% for i in range(99999) %}{{ 'y' in s }}{% endfor %}",
	"sort":             "{% for i in range(99999) %}{{ range(99999) | sort | length }}{% endfor %}",
	"generator":        "{% for x in range(99999) | map('string') %}{{ range(99999) | map('string') | select('in', [1]) | list }}{% endfor %}",
	"upper":            "{% set s = 'é' * 1000000 %}{% for i in range(99999) %}{% set x = s.upper() %}{% endfor %}",
	"strip set":        "{% set s = 'é' * 1000000 %}{{ s.strip(s) }}{% for i in range(999) %}{{ (s ~ 'x').strip('yyyyyyyyyyyyyyyé')|length }}{% endfor %}",
	"unique":           "{% for i in range(99999) %}{{ range(9999) | unique | list | length }}{% endfor %}",
	"slices":           "{% set l = range(99999) | list %}{% for i in range(99999) %}{% set x = l[1:] %}{% endfor %}",
	"characters":       "{% set s = 'é' * 10000000 %}{% for i in range(99999) %}{% set x = s[9999999] %}{% endfor %}",
	"split":            "{% set s = 'é ' * 1000000 %}{% for i in range(99999) %}{% set x = s.split() %}{% endfor %}",
	"int":              "{% set s = '1' * 18 ~ ' ' * 10000000 %}{% for i in range(99999) %}{% set x = s | int %}{% endfor %}",
	"keys":             "{% set s = 'x' * 10000000 %}{% for i in range(99999) %}{% set x = {}[s] %}{% endfor %}",
	"length":           "{% set s = 'é' * 10000000 %}{% for i in range(99999) %}{% set x = s | length %}{% endfor %}",
	"methods":          "{% set s = 'x' * 10000000 %}{% for i in range(99999) %}{% set x = s.isdigit() or s.title() %}{% endfor %}",
	"truncate":         "{% set s = 'x' * 10000000 %}{% for i in range(99999) %}{% set x = s | truncate(9) %}{% endfor %}",
	"title":            "{% set s = 'x y ' * 4000000 %}{{ s | title | length }}{{ s.title() | length }}",
	"lines":            "{% set s = 'x\n' * 1000000 %}{% for i in range(99999) %}{% set x = s.splitlines() %}{% endfor %}",
	"select":           "{% set l = ['x' * 10000000] * 99999 %}{{ l | select('in', l[0]) | list | length }}",
	"JSON escapes":     "{{ ('\\u0001' * 30000000) | tojson | length }}",
	"JSON characters":  "{{ ('é' * 10000000) | tojson(ensure_ascii=true) | length }}",
	"representation":   "{{ ['\\u0001' * 10000000] * 9 }}",
	"dict":             "{% set ns = namespace(d={}) %}{% for i in range(99999) %}{% set ns.d = dict(ns.d, i=ns.d) %}{% endfor %}",
}

// TestAttacks checks that each ends within its budget, in little time and memory, with an error that names the limit.
func TestAttacks(t *testing.T) {
	for name, source := range attacks {
		t.Run(name, func(t *testing.T) {
			tmpl, err := jinja.Parse(source)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			text, err := tmpl.Render(t.Context(), nil, jinja.Options{Budget: jinja.Budget{Steps: 1_000_000, Memory: 64 << 20}})
			runtime.ReadMemStats(&after)
			var exceeded *jinja.BudgetError
			if !errors.As(err, &exceeded) {
				t.Fatalf("got %.50q, %v, want a BudgetError", text, err)
			}
			if exceeded.Line == 0 || !strings.Contains(err.Error(), "more than") {
				t.Errorf("the error is %q", err)
			}
			if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 2500 {
				t.Errorf("made %d MiB: %v", made, err)
			} else {
				t.Logf("%v; %d MiB", err, made)
			}
		})
	}
}

// TestBudget checks that each limit can be set, and holds.
func TestBudget(t *testing.T) {
	for _, test := range []struct {
		source string
		budget jinja.Budget
		want   string
	}{
		{"{% for i in range(100) %}{% endfor %}", jinja.Budget{Steps: 50}, "more than 50 steps"},
		{"{% set x = 'x' * 2000 %}", jinja.Budget{Memory: 1000}, "more than 1,000 bytes of values"},
		{"{% set x = 'x' * 2000 %}", jinja.Budget{Value: 1000}, "more than 1,000 bytes of one value"},
		{"{% set x = ['x' * 900] * 5 %}{{ x | tojson }}", jinja.Budget{Value: 1000}, "more than 1,000 bytes of one value"},
		{"{% set x = ['x' * 900] * 5 %}{{ x }}", jinja.Budget{Value: 1000}, "more than 1,000 bytes of one value"},
		{"{% set x = 'x' * 900 %}{{ '%s%s' % (x, x) }}", jinja.Budget{Value: 1000}, "more than 1,000 bytes of one value"},
		{"0123456789", jinja.Budget{Output: 9}, "more than 9 bytes of text"},
		{"{% macro f(n) %}{{ f(n - 1) if n }}{% endmacro %}{{ f(5) }}", jinja.Budget{Depth: 5}, "more than 5 calls within calls"},
		{"{% for i in range(99999) %}{% endfor %}", jinja.Budget{Time: time.Nanosecond}, "more than 1ns"},
		{"0123456789", jinja.Budget{Output: 10}, ""},
		{"{% macro f(n) %}{{ f(n - 1) if n }}{% endmacro %}{{ f(4) }}", jinja.Budget{Depth: 5}, ""},
	} {
		tmpl, err := jinja.Parse(test.source)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tmpl.Render(t.Context(), nil, jinja.Options{Budget: test.budget})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s with %+v: got %v, want %q", test.source, test.budget, err, test.want)
		}
	}
}

// gate is a context that blocks its caller at the n-th call until it is opened.
type gate struct {
	context.Context
	n             int
	reached, open chan struct{}
}

func (g *gate) Err() error {
	if g.n--; g.n == 0 {
		close(g.reached)
		<-g.open
	}
	return nil
}

// TestBudgetShared checks that current renderings hold no more together than a template's share. A small rendering runs
// beside them, and a rendering's memory is free when it ends.
func TestBudgetShared(t *testing.T) {
	tmpl, err := jinja.Parse("{% for i in range(16) %}{% set x = 'x' * n %}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	render := func(ctx context.Context, n int64) error {
		_, err := tmpl.Render(ctx, map[string]any{"n": n}, jinja.Options{Budget: jinja.Budget{Time: time.Hour}})
		return err
	}
	const large = 31 << 20
	ended := make(chan error, 2) // one from each of the two that are blocked
	open := make(chan struct{})
	for range cap(ended) {
		g := &gate{t.Context(), 17, make(chan struct{}), open} // at its first step, and at each large text
		go func() { ended <- render(g, large) }()
		<-g.reached
	}
	if err := render(t.Context(), large); !errors.Is(err, jinja.ErrBusy) {
		t.Errorf("a third that takes half of it: got %v, want ErrBusy", err)
	}
	if err := render(t.Context(), 1000); err != nil {
		t.Errorf("one that takes little: %v", err)
	}
	close(open)
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := render(t.Context(), large); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestContext checks that the work ends when the client leaves.
func TestContext(t *testing.T) {
	tmpl, err := jinja.Parse(attacks["nested ranges"])
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := tmpl.Render(ctx, nil, jinja.Options{}); !errors.Is(err, gone) {
		t.Errorf("got %v, want the context's cause", err)
	}
}
