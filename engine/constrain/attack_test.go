package constrain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// object and list are JSON as tests write it.
type (
	object = map[string]any
	list   = []any
)

// times returns a list of f(0) to f(n-1).
func times(n int, f func(i int) any) list {
	l := make(list, n)
	for i := range l {
		l[i] = f(i)
	}
	return l
}

// named returns an object of n members.
func named(n int, f func(i int) (string, any)) object {
	o := object{}
	for i := range n {
		k, v := f(i)
		o[k] = v
	}
	return o
}

// chain returns n definitions, each of which refers to the next, and a last one.
func chain(n int, link func(next object) any, last any) object {
	defs := named(n, func(i int) (string, any) {
		return fmt.Sprintf("d%d", i), link(object{"$ref": fmt.Sprintf("#/$defs/d%d", i+1)})
	})
	defs[fmt.Sprintf("d%d", n)] = last
	return object{"$ref": "#/$defs/d0", "$defs": defs}
}

// join returns n texts with sep between.
func join(n int, sep string, f func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = f(i)
	}
	return strings.Join(all, sep)
}

// attack is a request that may cause much work.
type attack struct {
	name   string
	schema any    // or
	regex  string // or
	gbnf   string // or
	choice []string
}

var attacks = []attack{
	{name: "maxLength 1e9", schema: object{"type": "string", "maxLength": 1000000000}},
	{name: "minLength 1e9", schema: object{"type": "string", "minLength": 1000000000}},
	{name: "maxLength 1e5", schema: object{"type": "string", "maxLength": 100000}},
	{name: "maxLength of 30 properties", schema: object{"properties": named(30, func(i int) (string, any) {
		return fmt.Sprintf("p%d", i), object{"type": "string", "maxLength": 8000}
	})}},
	{name: "maxItems 1e9", schema: object{"maxItems": 1000000000, "items": object{"type": "integer"}}},
	{name: "minItems 1e6", schema: object{"minItems": 1000000, "items": object{"type": "integer"}}},
	{name: "minItems nested", schema: func() any {
		var s any = object{"type": "null"}
		for range 4 {
			s = object{"type": "array", "minItems": 100, "items": s}
		}
		return s
	}()},
	{name: "maximum 1e308", schema: object{"type": "number", "maximum": 1e308, "minimum": -1e308}},
	{name: "maximum 1e308 of 1000 properties", schema: object{"properties": named(1000, func(i int) (string, any) {
		return fmt.Sprintf("p%d", i), object{"type": "number", "maximum": 1e307 + float64(i)*1e300, "minimum": -1e308}
	})}},
	{name: "minimum 1e-308", schema: object{"type": "number", "minimum": 1e-308, "multipleOf": 0.00001}},
	{name: "multipleOf 9973", schema: object{"type": "integer", "multipleOf": 9973}},
	{name: "multipleOf of 100 properties", schema: object{"properties": named(100, func(i int) (string, any) {
		return fmt.Sprintf("p%d", i), object{"type": "integer", "multipleOf": 9000 + i, "minimum": i, "maximum": 1e17}
	})}},
	{name: "enum of 50000", schema: object{"enum": times(50000, func(i int) any { return fmt.Sprintf("value%06d", i) })}},
	{name: "enum and enum of 20000", schema: object{"allOf": list{
		object{"enum": times(20000, func(i int) any { return i })}, object{"enum": times(20000, func(i int) any { return -i })},
	}}},
	{name: "enum of 900 KB", schema: object{"enum": list{strings.Repeat("a", 900000)}}},
	{name: "const nested", schema: object{"const": json.RawMessage(strings.Repeat("[", 150) + strings.Repeat("]", 150))}},
	{name: "20000 properties", schema: object{"properties": named(20000, func(i int) (string, any) {
		return fmt.Sprintf("p%d", i), object{"type": "null"}
	})}},
	{name: "20000 properties, others", schema: object{"additionalProperties": object{}, "properties": named(20000, func(i int) (string, any) {
		return fmt.Sprintf("p%d", i), object{"type": "null"}
	})}},
	{name: "a name of 900 KB, others", schema: object{"additionalProperties": object{}, "properties": object{strings.Repeat("a", 900000): object{}}}},
	{name: "minProperties", schema: object{"properties": named(60, func(i int) (string, any) { return fmt.Sprintf("p%d", i), object{} }), "minProperties": 30}},
	{name: "anyOf of 1000 objects", schema: object{"anyOf": times(1000, func(i int) any {
		return object{"type": "object", "properties": object{fmt.Sprintf("a%d", i): object{"type": "string"}}, "required": list{fmt.Sprintf("a%d", i)}}
	})}},
	{name: "oneOf of 5000", schema: object{"oneOf": times(5000, func(i int) any { return object{"const": i} })}},
	{name: "allOf of anyOf, 10^10", schema: object{"allOf": times(10, func(j int) any {
		return object{"anyOf": times(10, func(i int) any { return object{"minimum": i*10 + j} })}
	})}},
	{name: "allOf of anyOf of objects, 20^8", schema: object{"allOf": times(8, func(j int) any {
		return object{"anyOf": times(20, func(i int) any { return object{"properties": object{fmt.Sprintf("k%d_%d", j, i): object{}}} })}
	})}},
	{name: "anyOf of 1000 beside 5000 properties", schema: object{
		"properties": named(5000, func(i int) (string, any) { return fmt.Sprintf("p%d", i), object{} }),
		"anyOf":      times(1000, func(i int) any { return object{"required": list{fmt.Sprintf("p%d", i)}} }),
	}},
	{name: "anyOf within items, each with all others", schema: object{"$ref": "#/$defs/a", "$defs": object{"a": object{"anyOf": times(200, func(i int) any {
		return object{"properties": object{fmt.Sprintf("x%d", i): object{"$ref": "#/$defs/a"}}}
	})}}}},
	{name: "a value of all sets of properties", schema: object{"$ref": "#/$defs/r", "$defs": object{"r": object{"allOf": times(9, func(i int) any {
		return object{"anyOf": list{object{"properties": object{"x": object{"$ref": "#/$defs/r"}, fmt.Sprintf("y%d", i): object{}}}, object{"minProperties": 0}}}
	})}}}},
	{name: "nested 190", schema: func() any {
		var s any = object{"type": "string"}
		for range 190 {
			s = object{"not-a-keyword": s}
		}
		return s
	}()},
	{name: "ref to itself", schema: object{"$ref": "#"}},
	{name: "refs in a ring", schema: object{"$ref": "#/$defs/a", "$defs": object{"a": object{"$ref": "#/$defs/b"}, "b": object{"$ref": "#/$defs/a"}}}},
	{name: "prefixItems, 2^40", schema: chain(40, func(next object) any {
		return object{"type": "array", "prefixItems": list{next, next}, "minItems": 2, "items": false}
	}, object{"type": "null"})},
	{name: "allOf, 2^40", schema: chain(40, func(next object) any { return object{"allOf": list{next, next}} }, object{"type": "string"})},
	{name: "allOf with unevaluatedProperties, 2^40", schema: chain(40, func(next object) any {
		return object{"allOf": list{object{"allOf": list{next}, "unevaluatedProperties": true}, object{"allOf": list{next}, "unevaluatedProperties": true}}}
	}, object{"type": "object"})},
	{name: "anyOf, 2^40", schema: chain(40, func(next object) any { return object{"anyOf": list{next, next}} }, object{"type": "string"})},
	{name: "oneOf, 2^40", schema: chain(40, func(next object) any { return object{"oneOf": list{next, next}} }, object{"type": "string"})},
	{name: "anyOf of anyOf in allOf, 2^40", schema: chain(40, func(next object) any {
		return object{"allOf": list{object{"anyOf": list{next, object{"minLength": 1}}}, object{"anyOf": list{next, object{"maxLength": 9}}}}}
	}, object{"type": "string"})},
	{name: "patternProperties, 2^40", schema: chain(40, func(next object) any {
		return object{"patternProperties": object{"^a": next, "b$": next}, "minProperties": 1}
	}, object{"type": "null"})},
	{name: "2000 patternProperties", schema: object{"patternProperties": named(2000, func(i int) (string, any) {
		return fmt.Sprintf("a.*%d.*b", i), object{}
	})}},
	{name: "patternProperties beside 5000 properties", schema: object{
		"properties":        named(5000, func(i int) (string, any) { return fmt.Sprintf("p%d", i), object{} }),
		"patternProperties": named(200, func(i int) (string, any) { return fmt.Sprintf("(a|b|ab)*%d", i), object{} }),
	}},
	{name: "dependentSchemas, 2^40", schema: chain(40, func(next object) any {
		return object{"dependentSchemas": object{"a": next, "b": next}}
	}, object{"type": "object"})},
	{name: "two that contain each other", schema: object{"$ref": "#/$defs/a", "$defs": object{
		"a": object{"type": "object", "properties": object{"x": object{"anyOf": list{object{"$ref": "#/$defs/a"}, object{"$ref": "#/$defs/b"}}}, "y": object{"$ref": "#/$defs/b"}}},
		"b": object{"type": "object", "properties": object{"x": object{"anyOf": list{object{"$ref": "#/$defs/b"}, object{"$ref": "#/$defs/a"}}}, "z": object{"$ref": "#/$defs/a"}}},
	}}},
	{name: "pattern nested", schema: object{"pattern": "^((((a{1,30}){1,30}){1,30}){1,30})$"}},
	{name: "pattern of 10^9 beginnings", schema: object{"pattern": "^((((((((((a?){9}){9}){9}){9}){9}){9}){9}){9}){9}){9}$"}},
	{name: "pattern of 200 loops", schema: object{"pattern": "^" + strings.Repeat("(a|b|ab|ba)*", 200) + "$"}},
	{name: "patterns, all at once", schema: object{"allOf": times(12, func(i int) any {
		return object{"pattern": fmt.Sprintf("^(a|b)*a(a|b){%d}$", i)}
	})}},
	{name: "looks ahead", schema: object{"pattern": "^" + join(12, "", func(i int) string { return fmt.Sprintf("(?=.*%c.*%c)", 'a'+i, 'n'+i) }) + ".*$"}},
	{name: "looks ahead that multiply", schema: object{"pattern": "^(?=(a|b)*a(a|b){30}$)(?!(a|b)*b(a|b){29}$).*$"}},
	{name: "looks ahead in a loop", schema: object{"pattern": "^(?:(?!ab|ba|(a|b)*a(a|b){12}c).)*$"}},
	{name: "all of Unicode", schema: object{"pattern": strings.Repeat(`(\p{L}|\p{N}|[^\p{Lu}]|\W\b)*`, 50)}},
	{name: "pattern of 900 KB", schema: object{"pattern": "^" + strings.Repeat("a?", 450000) + "$"}},
	{name: "pattern within 200 parentheses", schema: object{"pattern": strings.Repeat("(", 199) + "a" + strings.Repeat(")*", 199)}},

	{name: "regex of loops", regex: "(.*a){1000}"},
	{name: "regex a{1000}{1000}", regex: "(a{1000}){1000}"},
	{name: "regex of 20000 words", regex: join(20000, "|", func(i int) string { return fmt.Sprintf("w%d.*x", i) })},
	{name: "regex of Unicode", regex: strings.Repeat(`(\pL|\pN|\p{Greek}|.)*`, 300)},
	{name: "regex within 900 parentheses", regex: strings.Repeat("(", 900) + "a" + strings.Repeat(")", 900)},
	{name: "regex ambiguous", regex: "(.{0,100}x){0,100}"},
	{name: "regex of a?", regex: "(a?){1000}(a?){1000}(a?){1000}"},
	{name: "regex (a|b)*a(a|b){500}", regex: "(a|b)*a(a|b){500}"},
	{name: "regex of a long tail", regex: "(a|b)*a(a|b){999}(a|b){999}(a|b){999}"},

	{name: "grammar of ambiguous recursion", gbnf: "root ::= root2 | root2 root2\nroot2 ::= \"a\" | \"a\" root2 | \"a\" root2 root2 root2"},
	{name: "grammar nested", gbnf: `root ::= "(" root ")" root | ""`},
	{name: "grammar of 5000 rules", gbnf: "root ::= " + join(5000, " | ", func(i int) string { return fmt.Sprintf("r%d", i) }) + "\n" +
		join(5000, "\n", func(i int) string { return fmt.Sprintf(`r%d ::= [a-z]* "%d" r%d?`, i, i, i*7%5000) })},
	{name: "grammar of 1030 that begin alike", gbnf: alike(1030)},
	{name: "grammar of 1030 that begin alike, later", gbnf: strings.Replace(alike(1030), "root ::= ", "root ::= \"xy\" (", 1) + "\nunused ::= \"\""},
	{name: "grammar of stacks", gbnf: "root ::= a a a a a a\na ::= b b b b b b | [a-z]* a?\nb ::= c c c c c c | [a-z]* b?\nc ::= [a-z]* | [a-y]* c c c"},
	{name: "grammar of empty rules, 2^40", gbnf: "root ::= r0 \"x\"\n" + join(40, "\n", func(i int) string { return fmt.Sprintf("r%d ::= r%d r%d", i, i+1, i+1) }) + "\nr40 ::= \"\""},
	{name: "grammar of empty rules after a text, 2^40", gbnf: "root ::= \"abc\" r0 \"x\"\n" + join(40, "\n", func(i int) string { return fmt.Sprintf("r%d ::= r%d r%d", i, i+1, i+1) }) + "\nr40 ::= \"y\"?"},
	{name: "grammar of returns, 2^40", gbnf: "root ::= r0\n" + join(40, "\n", func(i int) string { return fmt.Sprintf(`r%d ::= r%d "a" | r%d "b"`, i, i+1, i+1) }) + "\nr40 ::= \"x\""},
	{name: "grammar of returns after a text, 2^40", gbnf: "root ::= [a-z] \"-\" r0\n" + join(40, "\n", func(i int) string { return fmt.Sprintf(`r%d ::= r%d "a" | r%d "b"`, i, i+1, i+1) }) + "\nr40 ::= \"x\""},
	{name: "grammar of counted repetition", gbnf: `root ::= ((((("a"{50}){50}){50}){50}){50}){50}`},
	{name: "grammar of a huge count", gbnf: `root ::= "a"{999999999}`},
	{name: "grammar of a huge limit", gbnf: `root ::= "a"{0,999999999}`},
	{name: "grammar of counted loops", gbnf: `root ::= ([a-z]* [0-9]*){0,60000}`},
	{name: "grammar of 100000 names", gbnf: "root ::= " + strings.Repeat("root2 ", 100000) + "\nroot2 ::= \"a\"?"},

	{name: "choice of 100000", choice: strings.Split(join(100000, "|", func(i int) string { return fmt.Sprintf("choice number %d", i) }), "|")},
	{name: "choice of a million of one", choice: strings.Split(strings.Repeat("a|", 999999)+"a", "|")},
	{name: "choice of four million", choice: strings.Split(strings.Repeat("ab|", 4000000)+"a", "|")},
	{name: "choice of beginnings", choice: strings.Split(join(1399, "|", func(i int) string { return strings.Repeat("a", i+1) }), "|")},
}

// alike returns a grammar of rules that all begin with letters.
func alike(n int) string {
	return "root ::= " + join(n, " | ", func(i int) string { return fmt.Sprintf("r%d", i) }) + "\n" +
		join(n, "\n", func(i int) string { return fmt.Sprintf(`r%d ::= [a-z]* "%d"`, i, i) })
}

// form reads the form of an attack.
func (a *attack) form(ctx context.Context, b *constrain.Budget) (constrain.Form, error) {
	switch {
	case a.regex != "":
		return constrain.Regex(ctx, b, a.regex)
	case a.gbnf != "":
		return constrain.GBNF(ctx, b, a.gbnf)
	case a.choice != nil:
		return constrain.Choice(ctx, b, a.choice...)
	}
	source, err := json.Marshal(a.schema)
	if err != nil {
		return constrain.Form{}, err
	}
	return constrain.Schema(ctx, b, source)
}

// TestAttacks checks that each form is refused, or has texts that can be written
// to their end; either way within the budget. A mask is never empty.
func TestAttacks(t *testing.T) {
	v := constrain.NewVocabulary(english)
	mask := make([]uint64, constrain.Words(v.Size()))
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			budget := constrain.NewBudget()
			var g constrain.Grammar
			form, err := a.form(t.Context(), budget)
			if err == nil {
				g, err = constrain.Compile(t.Context(), budget, form, v)
			}
			left := *budget
			full := constrain.NewBudget()
			t.Logf("%d steps, %d KiB: %v", full.Steps-left.Steps, (full.Bytes-left.Bytes)>>10, err)
			var known *constrain.FormError
			if err != nil {
				if !errors.As(err, &known) {
					t.Errorf("got %v, want a form error", err)
				}
				return
			}
			r := rand.New(rand.NewPCG(1, 1))
			m := g.Matcher()
			for range 40 {
				m.Mask(mask)
				allowed := tokensOf(mask)
				if len(allowed) == 0 {
					t.Fatal("nothing may follow")
				}
				err := m.Accept(allowed[r.IntN(len(allowed))])
				if errors.As(err, &known) || m.Done() {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if n := constrain.Bytes(g); n > 96<<20 {
				t.Errorf("the grammar holds %d MiB", n>>20)
			}
		})
	}
}

func tokensOf(mask []uint64) (tokens []int32) {
	for i, w := range mask {
		for ; w != 0; w &= w - 1 {
			tokens = append(tokens, int32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return tokens
}

// TestBudgetIsShared checks that many schemas of one request share one budget.
func TestBudgetIsShared(t *testing.T) {
	b := constrain.NewBudget()
	source := []byte(`{"type":"string","maxLength":2000}`)
	for range 100000 {
		form, err := constrain.Schema(t.Context(), b, source)
		if err == nil {
			_, err = constrain.Compile(t.Context(), b, form, constrain.NewVocabulary(english))
		}
		var known *constrain.FormError
		if errors.As(err, &known) && strings.Contains(known.Message, "one request") {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a budget has no end")
}

// TestLeaving checks that the work stops when the client leaves.
func TestLeaving(t *testing.T) {
	gone := errors.New("the client left")
	ctx, leave := context.WithCancelCause(t.Context())
	leave(gone)
	for _, a := range []attack{
		{name: "schema", schema: attacks[16].schema},
		{name: "grammar", gbnf: alike(3000)},
		{name: "regex", regex: "(a{500}){500}"},
	} {
		b := constrain.NewBudget()
		form, err := a.form(ctx, b)
		if err == nil {
			_, err = constrain.Compile(ctx, b, form, constrain.NewVocabulary(english))
		}
		if !errors.Is(err, gone) {
			t.Errorf("%s: got %v", a.name, err)
		}
		if used := constrain.NewBudget().Steps - b.Steps; used > 1<<20 {
			t.Errorf("%s: %d steps for nobody", a.name, used)
		}
	}
}
