package constrain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// generator makes schemas with all supported features.
type generator struct{ *rand.Rand }

func (g generator) pick(list ...any) any { return list[g.IntN(len(list))] }

// schema makes a schema; deep ones have children.
func (g generator) schema(depth int) any {
	depth = max(depth, 0)
	if g.IntN(12) == 0 {
		return g.pick(true, map[string]any{}, map[string]any{"$ref": fmt.Sprintf("#/$defs/d%d", g.IntN(3))})
	}
	s := map[string]any{}
	for range 1 + g.IntN(2) {
		g.keywords(s, depth)
	}
	if g.IntN(6) == 0 {
		s["enum"] = []any{1, 2.5, "a", "abc", nil, true, -3, "12"}[:1+g.IntN(8)]
	}
	return s
}

func (g generator) keywords(s map[string]any, depth int) {
	some := func(p int, key string, value func() any) {
		if g.IntN(p) == 0 {
			s[key] = value()
		}
	}
	n := func(most int) func() any { return func() any { return g.IntN(most) } }
	number := func() any { return g.pick(g.IntN(40)-20, float64(g.IntN(400)-200)/8, g.IntN(3000)-1000) }
	switch kinds := 6; g.IntN(kinds + min(depth, 1)*6) {
	case 0:
		s["type"] = g.pick("null", "boolean", []any{"string", "null"}, []any{"integer", "boolean"})
		some(3, "nullable", func() any { return true })
	case 1, 2:
		s["type"] = g.pick("integer", "number")
		some(2, "minimum", number)
		some(2, "maximum", number)
		some(4, "exclusiveMinimum", number)
		some(4, "exclusiveMaximum", number)
		some(4, "multipleOf", func() any { return g.pick(1, 2, 3, 7, 0.5, 2.5, 0.01) })
	case 3, 4, 5:
		s["type"] = "string"
		some(3, "minLength", n(4))
		some(3, "maxLength", n(7))
		some(3, "pattern", func() any {
			return g.pick("^[a-c]+$", "^ab?", "x$", `\d{2,3}`, `^[^a"]*$`, "a|b|é", `^(\\|")*$`, ".", `^\S\w?.$`, `\bab`, `^(?=.*\d)[^\s]{2,4}$`, `^(?!a)|b$`, `\P{Lu}{2}`)
		})
		some(5, "format", func() any {
			return g.pick("date", "ipv4", "uuid", "time", "json-pointer", "iri", "uri-template", "semver", "regex", "hostname", "relative-json-pointer", "email")
		})
	case 6, 7:
		s["type"] = "array"
		some(2, "items", func() any { return g.schema(depth - 1) })
		some(3, "prefixItems", func() any { return []any{g.schema(depth - 1), g.schema(depth - 1)} })
		some(3, "minItems", n(3))
		some(3, "maxItems", n(4))
	case 8, 9:
		g.object(s, depth)
	case 10:
		s["anyOf"] = []any{g.schema(depth - 1), g.schema(depth - 1)}
	case 11:
		s[g.pick("allOf", "oneOf").(string)] = []any{g.schema(depth - 1), g.schema(depth - 1)}
	}
}

// names are names of properties.
var names = []string{"a", "ab", "b", "x_1", "q\""}

func (g generator) object(s map[string]any, depth int) {
	s["type"] = "object"
	if g.IntN(4) > 0 {
		p := map[string]any{}
		for range 1 + g.IntN(3) {
			p[names[g.IntN(len(names))]] = g.schema(depth - 1)
		}
		s["properties"] = p
	}
	if g.IntN(2) == 0 {
		s["required"] = []any{names[g.IntN(len(names))]}
	}
	switch g.IntN(5) {
	case 0:
		s["additionalProperties"] = false
	case 1:
		s["additionalProperties"] = g.schema(depth - 1)
	case 2:
		s["patternProperties"] = map[string]any{g.pick("^x_", "b").(string): g.schema(depth - 1)}
	}
	if g.IntN(6) == 0 {
		s["maxProperties"] = g.IntN(4)
	}
	if g.IntN(4) == 0 {
		s["unevaluatedProperties"] = g.pick(false, false, true, g.schema(depth-1))
		if g.IntN(2) == 0 {
			s[g.pick("allOf", "anyOf").(string)] = []any{g.members(depth - 1), g.pick(g.members(depth-1), object{"$ref": fmt.Sprintf("#/$defs/d%d", g.IntN(4))})}
		}
	}
	if g.IntN(8) == 0 {
		s["propertyNames"] = g.pick(object{"maxLength": 2}, object{"pattern": "^[a-x]"}, object{"enum": list{"a", "b", "c"}}, object{"anyOf": list{object{"minLength": 2}, object{"const": "b"}}})
	}
	if g.IntN(10) == 0 {
		s["patternProperties"] = object{"^a": g.schema(depth - 1), "b$": g.schema(depth - 1), `^(?!x)\w+$`: g.schema(depth - 1)}
	}
}

// members makes a schema of some properties.
func (g generator) members(depth int) any {
	s := object{"properties": object{names[g.IntN(len(names))]: g.schema(depth - 1), names[g.IntN(len(names))]: true}}
	if g.IntN(3) == 0 {
		s["unevaluatedProperties"] = g.IntN(2) == 0
	}
	if g.IntN(4) == 0 {
		s["additionalProperties"] = g.pick(false, object{"type": "integer"})
	}
	return s
}

// TestRandomSchemas has the other validator check texts of random schemas. Refusals are fine, wrong
// texts are not; enough schemas must be accepted. ROUSE_TRIALS sets their number, if more than
// some hundreds.
func TestRandomSchemas(t *testing.T) {
	trials := 600
	if n, err := strconv.Atoi(os.Getenv("ROUSE_TRIALS")); err == nil {
		trials = n
	}
	var all []judged
	v := constrain.NewVocabulary(english)
	taken, ended := 0, 0
	for trial := range trials {
		g := generator{rand.New(rand.NewPCG(uint64(trial), 5))}
		root, ok := g.schema(3).(map[string]any)
		if !ok {
			continue
		}
		root["$defs"] = map[string]any{"d0": g.schema(2), "d1": g.schema(1), "d3": g.members(2), "d2": map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"$ref": "#/$defs/d2"}}}}
		source, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		form, err := constrain.Schema(t.Context(), nil, source)
		var grammar constrain.Grammar
		if err == nil {
			grammar, err = constrain.Compile(t.Context(), nil, form, v)
		}
		var known *constrain.FormError
		if errors.As(err, &known) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		taken++
		other, otherErr := compileOther(source) // it does not support look-ahead: Ajv does
		j := judged{Name: strconv.Itoa(trial), Schema: source}
		for range 15 {
			text, done := speak(t, grammar, english, g.Rand, 80)
			if !done {
				continue
			}
			ended++
			j.Texts = append(j.Texts, text)
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			if err == nil && otherErr == nil {
				err = other.Validate(value)
			}
			if err != nil {
				t.Errorf("trial %d, %s: %s: %v", trial, source, text, err)
				break
			}
		}
		all = append(all, j)
	}
	secondOpinion(t, all)
	t.Logf("%d of %d schemas were taken, %d texts ended", taken, trials, ended)
	if taken < trials/4 || ended < 5*taken {
		t.Errorf("%d of %d schemas were taken, %d texts ended", taken, trials, ended)
	}
}
