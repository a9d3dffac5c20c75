package vllmsim

import (
	"encoding/json"
	"strings"

	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// instance is a JSON text that a schema allows; without a schema, some object. It
// knows type, enum, const, properties, items, minItems, minimum, minLength, anyOf, oneOf,
// allOf and references within the schema.
func instance(schema map[string]any, seed uint64) string {
	text := strings.TrimSuffix(words.Decode(words.Text(seed, "", 0)[:8]), "\n")
	g := generator{root: schema, text: text}
	var value any = map[string]any{"answer": text, "confidence": 0.5}
	if schema != nil {
		value = g.value(schema, 0)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "{}" // cannot be: it is made of decoded JSON
	}
	return string(raw)
}

type generator struct {
	root map[string]any
	text string
}

// value goes down to a depth that no answer needs, so that a schema that contains itself ends.
func (g generator) value(schema any, depth int) any {
	s, is := schema.(map[string]any)
	if !is || depth > 24 {
		return nil
	}
	if ref, is := s["$ref"].(string); is {
		return g.value(g.find(ref), depth+1)
	}
	if v, found := s["const"]; found {
		return v
	}
	if list, is := s["enum"].([]any); is && len(list) > 0 {
		return list[0]
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if list, is := s[key].([]any); is && len(list) > 0 {
			return g.value(list[0], depth+1)
		}
	}
	kind, _ := s["type"].(string)
	if list, is := s["type"].([]any); is && len(list) > 0 {
		kind, _ = list[0].(string)
	}
	switch kind {
	case "string":
		text := g.text
		for n := number(s["minLength"], 0); len(text) < int(min(n, 4096)); {
			text += "."
		}
		return text
	case "integer":
		return int64(number(s["minimum"], 1))
	case "number":
		return number(s["minimum"], 0.5)
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		items := []any{}
		for range int(min(max(1, number(s["minItems"], 1)), 64)) {
			items = append(items, g.value(s["items"], depth+1))
		}
		return items
	}
	object := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		object[name] = g.value(p, depth+1)
	}
	return object
}

// find follows a reference such as #/$defs/city.
func (g generator) find(ref string) any {
	var at any = g.root
	path, found := strings.CutPrefix(ref, "#/")
	if !found {
		return nil
	}
	for _, step := range strings.Split(path, "/") {
		m, is := at.(map[string]any)
		if !is {
			return nil
		}
		at = m[step]
	}
	return at
}

func number(v any, otherwise float64) float64 {
	if n, is := v.(float64); is {
		return n
	}
	return otherwise
}
