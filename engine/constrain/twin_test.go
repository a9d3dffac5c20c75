package constrain_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// long has plain tokens of all lengths around the limits of texts, and others that hold plain text, escapes and quotes.
var long = append(append(words{}, english...), "abcd", "abcdefgh", "abababababab", "hello world", "ééé", "€uro", strings.Repeat("x", 31), strings.Repeat("x", 32),
	strings.Repeat("x", 33), strings.Repeat("é", 32), "abc\"", "ab\",\"", "a\\n", "\\u00", "\\", "\\\"x", "x\x7f", "tab\t", "\n  ", "\xc3", "x\xe2\x82", "\xac", "a\": \"")

// follows makes a random text and compares each mask with the twin's answer for every token.
func follows(t *testing.T, name string, f constrain.Form, w words, r *rand.Rand, steps int) bool {
	t.Helper()
	v := constrain.NewVocabulary(w)
	g, err := constrain.Compile(t.Context(), nil, f, v)
	if err != nil {
		return false
	}
	twin, err := constrain.NewTwin(t.Context(), f, v)
	if err != nil {
		return false
	}
	m, mask, text := g.Matcher(), make([]uint64, constrain.Words(w.Size())), ""
	for range steps {
		m.Mask(mask)
		var allowed []int32
		for id := range int32(w.Size()) {
			want := twin.Ends()
			if !w.IsEnd(id) {
				want = twin.Takes(w.Piece(id))
			}
			if constrain.Allows(mask, id) != want {
				t.Errorf("%s: after %q the mask has %q: %v, want %v", name, text, w.Piece(id), !want, want)
				return true
			}
			if want && !w.IsEnd(id) {
				allowed = append(allowed, id)
			}
		}
		if len(allowed) == 0 {
			return true
		}
		id := allowed[r.IntN(len(allowed))]
		if err := m.Accept(id); err != nil {
			t.Errorf("%s: after %q: %v", name, text, err)
			return true
		}
		text += string(w.Piece(id))
		twin.Go(w.Piece(id))
	}
	return true
}

// TestMasksAreTheTwins compares masks, with all their shortcuts, with an automaton without any, for every token.
func TestMasksAreTheTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, source := range []string{
		`{"type":"string"}`, `{"type":"string","maxLength":3}`, `{"type":"string","minLength":2,"maxLength":40}`, `{"type":"string","minLength":9}`,
		`{"type":"string","minLength":1}`, `{"type":"string","pattern":"^a","maxLength":9}`, `{"type":"string","pattern":"^[^a]{3,40}$"}`,
		`{"type":"string","pattern":"^([a-x]{1,9}é?){1,9}$"}`, `{"type":"string","pattern":"^.{0,8}x{0,9}$"}`, `{"type":"string","pattern":"^[a-z]{0,9}.{0,33}$"}`, `{"type":"string","pattern":"^.{3,9}x+$"}`,
		`{"anyOf":[{"type":"string","maxLength":8},{"enum":["hello world","abcdefghabcdefgh"]}]}`, `{"anyOf":[{"type":"string","maxLength":5},{"type":"string","pattern":"^x{9,}$"}]}`,
		`{"type":"array","items":{"type":"string","maxLength":4},"minItems":9,"maxItems":12}`, `{"type":"array","items":{"type":"array","items":{"const":1},"maxItems":9},"maxItems":8}`,
		`{"type":"object","properties":{"a":true,"ab":{"type":"integer"},"abc":{"type":"string","maxLength":8}}}`, `{"type":"object","properties":{"é":true,"\"":true},"required":["é"]}`,
		`{"type":"string","pattern":"^(ab|abcdef)*$","minLength":3,"maxLength":11}`, `{"type":"string","pattern":"^[^@]+@é+$","minLength":5,"maxLength":9}`, `{"type":"string","pattern":"^[^a]*(\"|\u0001x)+$","minLength":6}`,
		`{"type":"string","pattern":"^(a|bcd){2,3}$","maxLength":4}`, `{"type":"string","pattern":"^.*b","minLength":2,"maxLength":70}`, `{"type":"string","pattern":"^[a-x]+( [a-x]+){0,9}$","maxLength":12}`,
		`{"type":"string","format":"uri"}`, `{"type":"string","format":"email","maxLength":20}`, `{"type":"object","additionalProperties":{"type":"string","maxLength":9}}`,
	} {
		f, err := constrain.Schema(t.Context(), nil, []byte(source))
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		for range 4 {
			if !follows(t, source, f, long, r, 25) {
				t.Fatalf("%s was not compiled", source)
			}
		}
	}
	for _, source := range []string{`root ::= [^x]{0,9} "x"`, `root ::= ([^"]+ "\""){0,9} "\""`, `root ::= ("ab" | "a" | "b"){8,30} "\""`, `root ::= "\"" [^"\\]{0,40} "\"" | "ab"`, `root ::= (a{9} "y"?) | b b` + "\nb ::= [^\"]{3,8}\n" + `a ::= "x"? ([a-c]{0,9} "1")`} {
		f, err := constrain.GBNF(t.Context(), nil, source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		for range 4 {
			if !follows(t, source, f, long, r, 25) {
				t.Fatalf("%s was not compiled", source)
			}
		}
	}
	char, err := constrain.Regex(t.Context(), nil, `[^"]`)
	if err != nil {
		t.Fatal(err)
	}
	pairs := constrain.Repeat(constrain.AnyOf(char, constrain.Text("ab")), 0, 9)
	follows(t, "pairs", constrain.Sequence(pairs, constrain.Text(`"`)), long, r, 5)
	compared := 0
	for trial := range 300 {
		g := generator{rand.New(rand.NewPCG(uint64(trial), 9))}
		source, err := json.Marshal(g.schema(2))
		if err != nil {
			t.Fatal(err)
		}
		if f, err := constrain.Schema(t.Context(), nil, source); err == nil && follows(t, string(source), f, long, g.Rand, 20) {
			compared++
		}
	}
	if compared < 100 {
		t.Errorf("%d random schemas were compared", compared)
	}
}

// TestManyLongTexts checks the tools of one request that declare a thousand texts with long limits.
func TestManyLongTexts(t *testing.T) {
	b := constrain.NewBudget()
	var tools []constrain.Form
	for i := range 120 {
		properties := object{}
		for j := range 8 {
			properties["p"+string(rune('0'+j))] = object{"type": "string", "maxLength": 2000 + i}
		}
		source, err := json.Marshal(object{"type": "object", "properties": properties})
		if err != nil {
			t.Fatal(err)
		}
		f, err := constrain.Strict(t.Context(), b, source)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, f)
	}
	g, err := constrain.Compile(t.Context(), b, constrain.AnyOf(tools...), constrain.NewVocabulary(english))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{2000: true, 2119: true, 2120: false} {
		if got := accepts(g, english, `{"p3":"`+strings.Repeat("x", n)+`"}`); got != want {
			t.Errorf("a text of %d characters is taken: %v, want %v", n, got, want)
		}
	}
}
