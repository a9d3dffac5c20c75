package constrain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// validator is a second implementation that reads a schema.
func validator(t testing.TB, schema string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return s
}

// schemas are typical schemas of clients, and hard ones.
var schemas = []string{
	`{}`, `true`, `{"type":"object"}`, `{"type":"array"}`, `{"type":"string"}`, `{"type":"integer"}`, `{"type":"number"}`, `{"type":"boolean"}`, `{"type":"null"}`,
	`{"type":["string","null","integer"]}`,
	`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"boolean"}}}`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"boolean"}},"required":["b"]}`,
	`{"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"boolean"}},"required":["a"],"additionalProperties":{"type":"null"}}`,
	`{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":true}`,
	`{"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":3}`,
	`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{"const":1},"d":{}},"required":["c"],"minProperties":3}`,
	`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{"const":1}},"minProperties":2,"additionalProperties":false}`,
	`{"type":"string","contentMediaType":"text/html","contentEncoding":"base32"}`,
	`{"type":"object","required":["x","y"]}`,
	`{"properties":{"q\"\n":{"const":"\u0001\\"}},"required":["q\"\n"]}`,
	`{"enum":["a","ab","abc",1,1.5,null,true,{"x":[1,2]},"é\u2028"]}`, `{"const":{"b":1,"a":[]}}`,
	`{"type":"string","enum":["red",7,"green"]}`, `{"type":"integer","enum":[1,2.5,3],"minimum":2}`,
	`{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":4}`, `{"type":"array","items":{"type":"boolean"},"minItems":1}`, `{"type":"array","maxItems":0}`,
	`{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false}`,
	`{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"},{"type":"null"}],"items":{"type":"boolean"},"minItems":2,"maxItems":5}`,
	`{"prefixItems":[{"const":1},{"const":2}],"maxItems":1}`,
	`{"type":"string","minLength":2,"maxLength":5}`, `{"type":"string","minLength":1}`, `{"type":"string","maxLength":0}`,
	`{"type":"string","pattern":"^[a-z]{2,4}$"}`, `{"type":"string","pattern":"^ab"}`, `{"type":"string","pattern":"x$"}`, `{"type":"string","pattern":"[A-Z]+-\\d{2}"}`,
	`{"type":"string","pattern":"^[^a]*$","minLength":3,"maxLength":6}`, `{"type":"string","pattern":"^(\"|\\\\|\\n|é)+$"}`,
	`{"type":"integer","minimum":3,"maximum":1205}`, `{"type":"integer","minimum":-57,"maximum":23}`, `{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":2}`,
	`{"type":"integer","maximum":-5}`, `{"type":"integer","minimum":1000}`, `{"type":"integer","multipleOf":7,"minimum":-100,"maximum":10000}`, `{"type":"integer","minimum":0.5,"maximum":9.5}`,
	`{"type":"number","minimum":0,"maximum":1}`, `{"type":"number","minimum":-1.25,"maximum":3.75}`, `{"type":"number","exclusiveMinimum":2.5,"exclusiveMaximum":2.75}`,
	`{"type":"number","exclusiveMinimum":0}`, `{"type":"number","maximum":-0.001}`, `{"type":"number","multipleOf":0.25,"minimum":0,"maximum":100}`, `{"type":"number","exclusiveMinimum":-1,"exclusiveMaximum":1}`,
	`{"type":"number","minimum":99.5,"maximum":1e3}`, `{"type":"number","multipleOf":3}`, `{"type":"number","multipleOf":2.5}`, `{"type":"number","multipleOf":0.375,"minimum":-7,"maximum":20}`, `{"type":"number","multipleOf":0.125,"exclusiveMinimum":0}`,
	`{"type":"integer","multipleOf":1.5}`, `{"type":"integer","multipleOf":0.25,"allOf":[{"multipleOf":6}],"maximum":0}`, `{"type":"number","allOf":[{"multipleOf":0.75},{"multipleOf":0.5}]}`, `{"type":"integer","multipleOf":0.01,"minimum":-3}`, `{"enum":[0.07,0.5,19.99,3],"multipleOf":0.01}`, `{"type":"number","minimum":5,"maximum":5}`,
	`{"type":"string","format":"date-time"}`, `{"type":"string","format":"date"}`, `{"type":"string","format":"time"}`, `{"type":"string","format":"duration"}`, `{"type":"string","format":"email"}`,
	`{"type":"string","format":"hostname"}`, `{"type":"string","format":"ipv4"}`, `{"type":"string","format":"ipv6"}`, `{"type":"string","format":"uuid"}`, `{"type":"string","format":"uri"}`, `{"type":"string","format":"password"}`,
	`{"type":"string","format":"ipv4","maxLength":9}`,
	`{"anyOf":[{"type":"integer"},{"type":"string","maxLength":3},{"type":"array","items":{"type":"null"}}]}`,
	`{"type":"object","properties":{"k":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["k"]}`,
	`{"oneOf":[{"type":"integer"},{"type":"string"}]}`,
	`{"oneOf":[{"type":"object","properties":{"kind":{"const":"cat"},"lives":{"type":"integer"}},"required":["kind"]},{"type":"object","properties":{"kind":{"const":"dog"},"barks":{"type":"boolean"}},"required":["kind","barks"]}]}`,
	`{"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":5}},"required":["a"]},{"properties":{"a":{"maximum":7},"b":{"type":"string"}},"required":["b"]}]}`,
	`{"allOf":[{"type":"string","pattern":"^a"},{"pattern":"z$","maxLength":6}]}`,
	`{"properties":{"x":{"type":"integer"}},"required":["x"],"anyOf":[{"properties":{"y":{"const":1}},"required":["y"]},{"properties":{"z":{"const":2}},"required":["z"]}]}`,
	`{"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/node"}`,
	`{"definitions":{"t":{"type":"array","items":{"$ref":"#/definitions/t"},"maxItems":2}},"$ref":"#/definitions/t"}`,
	`{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}},"required":["children"],"additionalProperties":false}`,
	`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"x":{"$ref":"#/$defs/a"}},"allOf":[{"$ref":"#/$defs/b"}]},"b":{"type":"object","properties":{"x":{"$ref":"#/$defs/b"},"y":{"type":"null"}}}}}`,
	`{"type":"object","patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":false}`,
	`{"type":"object","patternProperties":{"^x":{"type":"integer"}},"properties":{"xa":{"minimum":3,"maximum":4},"y":{"type":"null"}},"additionalProperties":false}`,
	`{"type":"object","propertyNames":{"enum":["n","s"]},"additionalProperties":{"type":"integer"}}`,
	`{"type":"object","properties":{"a":{"type":"string","title":"A","description":"d","default":"x"}},"$schema":"https://json-schema.org/draft/2020-12/schema","title":"T","unevaluatedProperties":false}`,
	`{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/p"},{"type":"integer"}]},"$defs":{"p":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}}}`,
}

func TestSchema(t *testing.T) {
	for _, schema := range schemas {
		checkSchema(t, schema, 150)
	}
}

// checkSchema makes texts by random choices and has the other validator check the ones that ended.
func checkSchema(t testing.TB, schema string, texts int) {
	t.Helper()
	f, err := constrain.Schema(t.Context(), nil, []byte(schema))
	if err != nil {
		t.Errorf("%s: %v", schema, err)
		return
	}
	g, err := constrain.Compile(t.Context(), nil, f, constrain.NewVocabulary(english))
	if err != nil {
		t.Errorf("%s: %v", schema, err)
		return
	}
	s := validator(t, schema)
	r := rand.New(rand.NewPCG(1, 2))
	ended := 0
	for range texts {
		text, done := speak(t, g, english, r, 150)
		if !done {
			continue
		}
		ended++
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %q is no JSON: %v", schema, text, err)
			return
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %q: %v", schema, text, err)
			return
		}
	}
	if ended == 0 {
		t.Errorf("%s: no text ended", schema)
	}
}

// TestSchemaTakes checks that texts as people and models write them are in the form, and others are not.
func TestSchemaTakes(t *testing.T) {
	person := `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","age"]}`
	for _, test := range []struct {
		schema, text string
		want         bool
	}{
		{`{"type":"string","pattern":"^(?:\\S+\\s+){0,29}\\S+$","maxLength":300}`, `"some words of a text"`, true},
		{`{"type":"string","pattern":"^[a-z]+@[a-z]+$","maxLength":100000000}`, `"ann@example"`, true},
		{`{"type":"string","pattern":"^[a-z]+@[a-z]+$","maxLength":5}`, `"ann@ex"`, false},
		{`{"oneOf":[{"oneOf":[{"enum":["a","b"]},{"enum":["c"]}]},{"enum":["d"]},{"type":"array"}]}`, `"c"`, true},
		{`{"properties":{"b":{}},"anyOf":[{"properties":{"a":{}},"required":["a"]}]}`, `{"a":1,"b":2}`, true},
		{person, `{"name":"Ann","age":5}`, true},
		{person, `{"name": "Ann", "age": 5, "tags": ["a", "b"]}`, true},
		{person, "{\n  \"name\": \"Ann \\\"é\\u00e9\\ud83d\\ude00\",\n  \"age\": 150,\n  \"tags\": []\n}", true},
		{person, `{"name":"Ann","age":151}`, false},
		{person, `{"name":"Ann"}`, false},
		{person, `{"age":5,"name":"Ann"}`, false},
		{person, `{"name":"Ann","age":5,"x":1}`, true},
		{person, `{"name":"Ann","age":5,"name":1}`, false},
		{person, `{"name":"Ann","age":5} `, false},
		{person, `{"name":"Ann","age":05}`, false},
		{person, `{"name":"Ann","age":5,}`, false},
		{person, `{}`, false},
		{`{"type":"string"}`, `"\ud83d"`, false},
		{`{"type":"string"}`, `"\ude00\ud83d"`, false},
		{`{"type":"string"}`, "\"\n\"", false},
		{`{"type":"number"}`, `-1.5e-7`, true},
		{`{"type":"integer"}`, `-0`, true},
		{`{"type":"integer"}`, `00`, false},
		{`{"type":"integer","minimum":10}`, `999999999999999999`, true},
		{`{"type":"integer","minimum":10}`, `9`, false},
		{`{"type":"number","minimum":0.25}`, `0.25`, true},
		{`{"type":"number","minimum":0.25}`, `0.2499`, false},
		{`{"type":"number","minimum":0.25}`, `0.3`, true},
		{`{"type":"number","exclusiveMinimum":0.25}`, `0.250`, false},
		{`{"type":"number","exclusiveMinimum":0.25}`, `0.2501`, true},
		{`{"type":"number","maximum":12.5}`, `-7`, true},
		{`{"type":"number","maximum":12.5}`, `12.50`, true},
		{`{"type":"number","maximum":12.5}`, `12.51`, false},
		{`{"type":"object"}`, `{"a":{"b":[1,{"c":null}]}}`, true},
		{`{"properties":{"a":{},"b":{},"c":{}},"required":["b"],"minProperties":2}`, `{"b":1}`, false},
		{`{"properties":{"a":{},"b":{},"c":{}},"required":["b"],"minProperties":2}`, `{"a":1,"b":1}`, true},
		{`{"properties":{"a":{},"b":{},"c":{}},"required":["b"],"minProperties":2}`, `{"b":1,"c":1,"x":1}`, true},
		{`{"properties":{"a":{},"b":{},"c":{}},"required":["b"],"minProperties":2}`, `{"b":1,"x":1}`, false},
		{`{"properties":{"a":{},"b":{},"c":{}},"required":["b"],"minProperties":2}`, `{"a":1,"c":1}`, false},
		{`{"properties":{"a":{},"b":{}},"minProperties":1}`, `{}`, false},
		{`{"properties":{"a":{},"b":{}},"minProperties":1}`, `{"b":1}`, true},
		{`{"type":"string","contentMediaType":"text/html"}`, `"<p>"`, true},
		{`{"type":"string","format":"uri"}`, `"http://your-mesos-master-host:5050"`, true},
		{`{"type":"string","format":"uri"}`, `"mailto:a@b.example"`, true},
		{`{"type":"string","format":"uri"}`, `"urn:isbn:0451450523"`, true},
		{`{"type":"string","format":"uri"}`, `"https://u:p@h/x?y#z"`, true},
		{`{"type":"string","format":"uri"}`, `"http://h/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/b"`, true},
		{`{"type":"string","format":"uri"}`, `"no uri"`, false},
		{`{"type":"string","format":"uri"}`, `"://x"`, false},
		{`{"type":"string","format":"uri"}`, `"http:// x"`, false},
		{`{"type":"string","format":"date"}`, `"2024-02-29"`, true},
		{`{"type":"string","format":"date"}`, `"2023-02-29"`, false},
		{`{"type":"string","pattern":"^\\d+$"}`, `"12a"`, false},
		{`{"type":"integer","multipleOf":1e-8}`, `9999999999999`, true},
		{`{"type":"integer","multipleOf":2}`, `100000000000000`, true},
		{`{"type":"number","multipleOf":0.01}`, `0.07`, true},
		{`{"type":"number","multipleOf":0.01}`, `19.9`, true},
		{`{"type":"number","multipleOf":0.01}`, `0.075`, false},
		{`{"type":"number","multipleOf":0.0001,"minimum":0}`, `0.0075`, true},
		{`{"type":"number","multipleOf":0.0001,"minimum":0}`, `0.00751`, false},
		{`{"type":"number","multipleOf":0.03,"maximum":1}`, `0.27`, true},
		{`{"type":"number","multipleOf":0.03,"maximum":1}`, `0.28`, false},
		{`{"enum":[0.07,0.075],"multipleOf":0.01}`, `0.07`, true},
		{`{"enum":[0.07,0.075],"multipleOf":0.01}`, `0.075`, false},
		{`{"type":"number","format":"int64"}`, `15`, true},
		{`{"type":"number","format":"int64"}`, `1.5`, false},
		{`{"type":"number","allOf":[{"format":"uint8"}]}`, `1.5`, false},
		{`{"type":"number","format":"int32","minimum":1.5}`, `1.75`, false},
		{`{"type":"number","format":"double"}`, `1.5`, true},
		{`{"enum":[1.5,2],"format":"int32"}`, `2`, true},
		{`{"enum":[1.5,2],"format":"int32"}`, `1.5`, false},
		{`{"type":["number","string"],"format":"int32"}`, `1.5`, false},
	} {
		f, err := constrain.Schema(t.Context(), nil, []byte(test.schema))
		if err != nil {
			t.Errorf("%s: %v", test.schema, err)
			continue
		}
		if got := accepts(compile(t, f, english), english, test.text); got != test.want {
			t.Errorf("%s: %s accepted: %v, want %v", test.schema, test.text, got, test.want)
		}
	}
}

// TestStrict reads a schema in the form that OpenAI's strict mode requires, and as written.
func TestStrict(t *testing.T) {
	for _, test := range []struct {
		schema, text  string
		strict, loose bool
	}{
		{`{"type":"object","properties":{"a":{"type":"integer"}}}`, `{"a":5,"x":1}`, false, true},
		{`{"type":"object","properties":{"a":{"type":"integer"}}}`, `{"a":5}`, true, true},
		{`{"properties":{"a":{"type":"integer"}}}`, `"text"`, false, true},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":"text"}`, false, false},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"b":{"a":"text"}}`, false, true},
		{`{"properties":{"a":true},"additionalProperties":true}`, `{"b":1}`, true, true},
		{`{"properties":{"b":true},"allOf":[{"properties":{"a":true}}]}`, `{"a":1,"b":2}`, true, true},
		{`{"properties":{"b":true},"allOf":[{"properties":{"a":true}}]}`, `{"b":2,"a":1}`, false, false},
		{`{"minimum":3}`, `null`, false, true},
		{`{"minimum":3}`, `2`, false, false},
		{`{"pattern":""}`, `"any"`, true, true},
		{`{"oneOf":[{"properties":{"k":{"const":1}},"required":["k"]},{"properties":{"k":{"const":2}},"required":["k"]}]}`, `5`, false, false},
	} {
		for _, strict := range []bool{true, false} {
			read, want := constrain.Schema, test.loose
			if strict {
				read, want = constrain.Strict, test.strict
			}
			f, err := read(t.Context(), nil, []byte(test.schema))
			if err != nil {
				t.Errorf("%s: %v", test.schema, err)
				continue
			}
			if got := accepts(compile(t, f, english), english, test.text); got != want {
				t.Errorf("%s, strict %v: %s accepted: %v, want %v", test.schema, strict, test.text, got, want)
			}
		}
	}
}

func TestSchemaRefusals(t *testing.T) {
	for schema, want := range map[string]string{
		`{`:                                   "not JSON",
		`{} {}`:                               "follows",
		`7`:                                   "want an object",
		`{"type":"int"}`:                      "int",
		`{"type":"object","properties":[]}`:   "properties",
		`{"not":{"type":"string"}}`:           "not",
		`{"type":"array","uniqueItems":true}`: "uniqueItems",
		`{"contentMediaType":"application/json"}`:                          "contentMediaType",
		`{"if":{},"then":{}}`:                                              "if",
		`{"type":"object","properties":{"a":{}},"minProperties":2}`:        "at most 1",
		`{"type":"object","properties":{"a":{},"b":{}},"maxProperties":1}`: "maxProperties",
		`{"type":"object","dependentRequired":{}}`:                         "dependentRequired",
		`{"$ref":"http://example.com/s"}`:                                  "$ref",
		`{"$ref":"#/$defs/none"}`:                                          "does not exist",
		`{"$ref":"#"}`:                                                     "back to itself",
		`{"type":"string","pattern":"(?=a)b"}`:                             "no text",
		`{"type":"string","pattern":"a^b"}`:                                "no text",
		`{"oneOf":[{"type":"integer"},{"type":"number"}]}`:                 "anyOf",
		`{"oneOf":[]}`:     "empty",
		`{"minLength":-1}`: "minLength",
		`{"maxItems":1.5}`: "maxItems",
		`{"multipleOf":0}`: "multipleOf",
		`{"type":"integer","multipleOf":0.123456789}`: "multipleOf",
		`{"minimum":"1"}`:                         "minimum",
		`{"minimum":1e999}`:                       "minimum",
		`{"type":"string","minLength":100000000}`: "too large",
		`{"type":"array","items":{"type":"array","minItems":9000,"items":{"type":"array","minItems":900,"items":{"const":1}}},"minItems":900}`: "",
		`false`: "no text",
		`{"type":"integer","minimum":2,"maximum":1}`: "no text",
		`{"enum":[]}`: "no text",
		`{"$defs":{"a":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}},"$ref":"#/$defs/a"}`:                  "no text",
		strings.Repeat(`{"items":`, 300) + `{}` + strings.Repeat(`}`, 300):                                                               "deep",
		`{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{"anyOf":[{"const":1},{"const":2},{"const":3},{"const":4}]},`, 8), ",") + `]}`: "alternatives",
	} {
		f, err := constrain.Schema(t.Context(), nil, []byte(schema))
		if err == nil {
			_, err = constrain.Compile(t.Context(), nil, f, constrain.NewVocabulary(english))
		}
		if want == "" {
			continue // an error must only come soon
		}
		var known *constrain.FormError
		if !errors.As(err, &known) || !strings.Contains(known.Message, want) {
			t.Errorf("%.100s: got %v, want an error with %q", schema, err, want)
		}
	}
}

// FuzzSchema checks that no schema causes a panic or takes long, and that the texts of accepted schemas are valid.
func FuzzSchema(f *testing.F) {
	for _, s := range schemas {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		form, err := constrain.Schema(t.Context(), nil, schema)
		if err != nil {
			return
		}
		g, err := constrain.Compile(t.Context(), nil, form, constrain.NewVocabulary(english))
		if err != nil {
			return
		}
		var other *jsonschema.Schema
		// Schemas of other drafts and with references to other documents are not compared.
		if !bytes.Contains(schema, []byte("$id")) && !bytes.Contains(schema, []byte("$schema")) && !bytes.Contains(schema, []byte("$anchor")) {
			if doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema)); err == nil {
				c := jsonschema.NewCompiler()
				c.AssertFormat()
				if c.AddResource("schema.json", doc) == nil {
					other, _ = c.Compile("schema.json") // nil if it refuses the schema
				}
			}
		}
		r := rand.New(rand.NewPCG(3, 4))
		for range 3 {
			text, done := speak(t, g, english, r, 60)
			if done && !json.Valid([]byte(text)) {
				t.Fatalf("%s: %q is no JSON", schema, text)
			}
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			if !done || other == nil || err != nil {
				continue
			}
			if err := other.Validate(v); err != nil {
				t.Fatalf("%s: %q: %v", schema, text, err)
			}
		}
	})
}

// TestMessagesArePlain checks that what a client writes is quoted and cut in messages: they have no control characters,
// no invisible ones, and are short.
func TestMessagesArePlain(t *testing.T) {
	odd, long := "a\n\x1b[2J\u2028\u202e~/b", strings.Repeat("x", 1000)
	schema := func(v any) error {
		source, _ := json.Marshal(v) // maps of strings always marshal
		_, err := constrain.Schema(t.Context(), nil, source)
		return err
	}
	grammar := func(text string) error {
		f, err := constrain.GBNF(t.Context(), nil, text)
		if err == nil {
			_, err = constrain.Compile(t.Context(), nil, f, constrain.NewVocabulary(english))
		}
		return err
	}
	regex := func(text string) error {
		_, err := constrain.Regex(t.Context(), nil, text)
		return err
	}
	type object = map[string]any
	errs := []error{schema(object{"$ref": "#/" + odd}), schema(object{"$schema": odd}), schema(object{"enum": odd}), schema(object{"required": odd}), regex("("), regex(odd + "("), schema(object{"pattern": "\\\u2028"}), schema(object{"pattern": "\\\u0085"})}
	for _, name := range []string{odd, long} {
		errs = append(
			errs,
			schema(object{"properties": object{name: object{"not": object{}}}}), schema(object{"properties": object{name: name}}), schema(object{"type": name}),
			schema(object{"minLength": name}), schema(object{"minimum": name}), schema(object{"format": name}), schema(object{"pattern": "\\" + name + "("}), schema(object{"pattern": "(" + name}),
			grammar(name+" "+name), grammar("root ::= "+name+" "+name+" ("), grammar("root ::= [a]{"+name+"}"),
		)
	}
	for _, r := range []string{"\n", "\u2028", "\u0085", "\x7f"} {
		errs = append(errs, grammar(`root ::= "\`+r+`"`), grammar("root ::= \"a\"{2,"+r+"1}"), grammar("root ::= \"a\"{2"+r+",1}"))
	}
	zeros := strings.Repeat("0", 1000)
	errs = append(errs, schema(object{"pattern": "a{" + zeros + "2," + zeros + "1}"}), grammar("root ::= "+long+"\n"+long+" ::= "+long+" \"a\""))
	for i, err := range errs {
		known, ok := errors.AsType[*constrain.FormError](err)
		if !ok {
			t.Errorf("form %d: got %v, want a FormError", i, err)
			continue
		}
		if len(known.Message) > 600 || strings.ContainsFunc(known.Message, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("form %d: the message is not plain: %q", i, known.Message)
		}
	}
}
