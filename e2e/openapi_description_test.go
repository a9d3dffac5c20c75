package e2e

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// apiDescription describes valid answers of OpenAI's API, in any version of OpenAPI 3.0 or 3.1. It is safe for concurrent use once it is
// loaded.
//
//  1. A [tap] takes a client's connection and dials the server. What either side sends goes on to the other as it comes, and a copy of it
//     is read as HTTP.
//  2. When an answer has ended, an [httpExchange] has the request, the answer, and how it ended.
//  3. [apiDescription.Judge] finds the answer's schema by its path and status; an event's, by its type. Paths that are not described are not
//     judged.
//  4. It also checks rules that no schema has. A stream ends once, with [DONE], with the last event of a response or with an error. The
//     chunks of a stream have one id. Events of a response are numbered, and their texts are the parts' sum.
type apiDescription struct {
	answers map[string]*jsonschema.Schema // by "METHOD path", with " stream" for events of streams
	events  map[string]*jsonschema.Schema // of a response's stream, by type
	failure *jsonschema.Schema
}

// described are the operations that are judged, and where the schema of an event of a stream is that no description names at its path.
var described = []struct{ method, path, event string }{
	{"POST", "/chat/completions", "CreateChatCompletionStreamResponse"},
	{"POST", "/completions", "CreateCompletionResponse"},
	{"POST", "/embeddings", ""},
	{"POST", "/responses", "ResponseStreamEvent"},
	{"GET", "/models", ""},
	{"GET", "/models/{model}", ""},
}

// failure is the schema of errors, for descriptions that have left it out.
const failure = `{"type":"object","required":["error"],"properties":{"error":{"type":"object","required":["type","message","param","code"],
	"properties":{"type":{"type":"string"},"message":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}}`

// loadDescriptions reads descriptions. Of an operation that several have, the first counts.
func loadDescriptions(paths ...string) (*apiDescription, error) {
	d := &apiDescription{answers: map[string]*jsonschema.Schema{}, events: map[string]*jsonschema.Schema{}}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a description: %w", err)
		}
		if err := d.add(path, raw); err != nil {
			return nil, fmt.Errorf("load the description %s: %w", path, err)
		}
	}
	for _, o := range described {
		if d.answers[o.method+" "+o.path] == nil {
			return nil, fmt.Errorf("no description has %s %s", o.method, o.path)
		}
	}
	if d.failure == nil {
		s, err := newDescriptionSource("errors", []byte(failure))
		if err == nil {
			err = s.compile("", &d.failure)
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// descriptionSource is one description.
type descriptionSource struct {
	name string
	doc  map[string]any
	c    *jsonschema.Compiler
}

func newDescriptionSource(name string, raw []byte) (*descriptionSource, error) {
	var tree any
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return nil, fmt.Errorf("parse it: %w", err)
	}
	doc, _ := plainSchema(tree).(map[string]any)
	if chunk, is := inTree(doc, "components", "schemas", "CreateChatCompletionStreamResponse", "properties").(map[string]any); is && chunk["usage"] != nil {
		chunk["usage"] = nullable(chunk["usage"]) // as its description says; not each version's schema does
	}
	if choice, is := inTree(doc, "components", "schemas", "CreateCompletionResponse", "properties", "choices", "items", "properties").(map[string]any); is {
		choice["finish_reason"] = nullable(choice["finish_reason"]) // of a part, which is not described apart
		either, _ := inTree(choice, "logprobs", "anyOf").([]any)
		for _, scores := range either { // the first token of a prompt that is repeated has none
			for _, name := range []string{"token_logprobs", "top_logprobs"} {
				if list, is := inTree(scores, "properties", name).(map[string]any); is {
					list["items"] = nullable(list["items"])
				}
			}
		}
	}
	if err := bringUp(doc); err != nil {
		return nil, err
	}
	whole, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("write it as JSON: %w", err)
	}
	if tree, err = jsonschema.UnmarshalJSON(strings.NewReader(string(whole))); err != nil {
		return nil, fmt.Errorf("read it as JSON: %w", err)
	}
	s := &descriptionSource{name, doc, jsonschema.NewCompiler()}
	s.c.DefaultDraft(jsonschema.Draft2020)
	s.c.UseLoader(nowhere{})
	if err := s.c.AddResource("file:///description", tree); err != nil {
		return nil, fmt.Errorf("add it: %w", err)
	}
	return s, nil
}

//go:embed testdata/openapi/later.yaml
var later []byte

// bringUp adds to a description what came later, where it lacks it.
func bringUp(doc map[string]any) error {
	var all map[string]struct {
		Into   []string
		Schema any
	}
	if err := yaml.Unmarshal(later, &all); err != nil {
		return fmt.Errorf("read what came later: %w", err)
	}
	schemas, _ := inTree(doc, "components", "schemas").(map[string]any)
	for name, l := range all {
		if schemas == nil || schemas[name] != nil {
			continue
		}
		for _, into := range l.Into {
			path := strings.Split(into, "/")
			parent, _ := inTree(schemas, path[:len(path)-1]...).(map[string]any)
			last := path[len(path)-1]
			if parent[last] == nil {
				continue
			}
			one := map[string]any{"$ref": components + name}
			if target, _ := parent[last].(map[string]any); target["anyOf"] != nil {
				alternatives, _ := target["anyOf"].([]any)
				target["anyOf"] = append(alternatives, one)
			} else {
				parent[last] = map[string]any{"anyOf": []any{parent[last], one}}
			}
			schemas[name] = l.Schema
		}
	}
	return nil
}

// compile compiles the schema at a reference within the description into a place.
func (s *descriptionSource) compile(ref string, into **jsonschema.Schema) (err error) {
	if *into, err = s.c.Compile("file:///description" + ref); err != nil {
		return fmt.Errorf("compile %s: %w", ref, err)
	}
	return nil
}

// add takes what one description has.
func (d *apiDescription) add(name string, raw []byte) error {
	s, err := newDescriptionSource(name, raw)
	if err != nil {
		return err
	}
	for _, o := range described {
		key := o.method + " " + o.path
		path := []string{"paths", o.path, strings.ToLower(o.method), "responses", "200", "content", "application/json", "schema"}
		if inTree(s.doc, path...) == nil || d.answers[key] != nil {
			continue
		}
		for i := range path {
			path[i] = strings.ReplaceAll(path[i], "/", "~1")
		}
		var answer, event *jsonschema.Schema
		if err := s.compile("#/"+strings.Join(path, "/"), &answer); err != nil {
			return err
		}
		d.answers[key] = answer
		if o.event == "" {
			continue
		}
		if err := s.compile(components+o.event, &event); err != nil {
			return err
		}
		d.answers[key+" stream"] = event
		if err := d.addEvents(s, o.event); err != nil {
			return err
		}
	}
	if inTree(s.doc, "components", "schemas", "ErrorResponse") != nil && d.failure == nil {
		return s.compile(components+"ErrorResponse", &d.failure)
	}
	return nil
}

const components = "#/components/schemas/"

// addEvents divides the alternatives of a schema by type, so that an error in an event is reported for its own type
// only.
func (d *apiDescription) addEvents(s *descriptionSource, schema string) error {
	all, _ := inTree(s.doc, "components", "schemas", schema, "anyOf").([]any)
	for _, one := range all {
		ref, _ := inTree(one, "$ref").(string)
		kinds, _ := inTree(s.doc, "components", "schemas", strings.TrimPrefix(ref, components), "properties", "type", "enum").([]any)
		if len(kinds) != 1 {
			continue
		}
		var event *jsonschema.Schema
		if err := s.compile(ref, &event); err != nil {
			return err
		}
		kind, _ := kinds[0].(string)
		d.events[kind] = event
	}
	return nil
}

// nowhere loads nothing: a description is whole.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, errors.New("the description refers to " + url)
}

// inTree follows names and numbers into a tree; nil: there is nothing.
func inTree(tree any, names ...string) any {
	for _, name := range names {
		switch node := tree.(type) {
		case map[string]any:
			tree = node[name]
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(node) {
				return nil
			}
			tree = node[n]
		default:
			return nil
		}
	}
	return tree
}

// plainSchema makes JSON schemas of OpenAPI's: "nullable" is OpenAPI 3.0's, and alternatives that overlap, as some that are called
// "oneOf" do, are meant to be told apart by a type.
func plainSchema(tree any) any {
	switch v := tree.(type) {
	case map[any]any:
		m := make(map[string]any, len(v))
		for name, value := range v {
			m[fmt.Sprint(name)] = value
		}
		return plainSchema(m)
	case []any:
		for i := range v {
			v[i] = plainSchema(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = plainSchema(v[name])
		}
		if one, is := v["oneOf"].([]any); is {
			v["anyOf"] = one
			delete(v, "oneOf")
		}
		for _, name := range []string{"exclusiveMinimum", "exclusiveMaximum"} {
			if _, is := v[name].(bool); is { // of OpenAPI 3.0
				delete(v, name)
			}
		}
		if v["nullable"] == true {
			delete(v, "nullable")
			return nullable(v)
		}
	}
	return tree
}

func nullable(schema any) any {
	return map[string]any{"anyOf": []any{map[string]any{"type": "null"}, schema}}
}

// problem checks a value against a schema; nil: it fits.
func problem(s *jsonschema.Schema, raw []byte) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return fmt.Errorf("it ends within JSON: %.200s", raw)
		}
		return fmt.Errorf("it is no JSON (%w): %.200s", err, raw)
	}
	if err := s.Validate(v); err != nil {
		return fmt.Errorf("%w\nof %.2000s", err, raw)
	}
	return nil
}
