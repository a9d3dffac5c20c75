package serve

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// structure has OpenAI's, vLLM's old and new, and llama.cpp's fields, of which one may be set.
type structure struct {
	ResponseFormat *responseFormat `json:"response_format"`

	StructuredOutputs *struct {
		JSON          json.RawMessage `json:"json"`
		Regex         *string         `json:"regex"`
		Choice        []string        `json:"choice"`
		Grammar       *string         `json:"grammar"`
		JSONObject    bool            `json:"json_object"`
		StructuralTag json.RawMessage `json:"structural_tag"`
	} `json:"structured_outputs"`

	GuidedJSON    json.RawMessage `json:"guided_json"`
	GuidedRegex   *string         `json:"guided_regex"`
	GuidedChoice  []string        `json:"guided_choice"`
	GuidedGrammar *string         `json:"guided_grammar"`

	Grammar    *string         `json:"grammar"`
	JSONSchema json.RawMessage `json:"json_schema"`
}

// responseFormat is OpenAI's; schema is llama.cpp's.
type responseFormat struct {
	Type       string          `json:"type"`
	Schema     json.RawMessage `json:"schema"`
	JSONSchema *struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict bool            `json:"strict"`
	} `json:"json_schema"`
}

type constraint struct {
	param string
	kind  string
	// source is the client's text; with kind it identifies the form.
	source string
	form   func(context.Context, *constrain.Budget) (constrain.Form, error)
}

func (s *structure) constraint() (*constraint, error) {
	var all []*constraint // nil: absent
	if s.ResponseFormat != nil {
		w, err := s.ResponseFormat.constraint()
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	if o := s.StructuredOutputs; o != nil {
		if !null(o.StructuralTag) {
			return nil, unsupported("structured_outputs.structural_tag", "a structural tag")
		}
		all = append(all,
			schemaConstraint("structured_outputs.json", o.JSON, false),
			regexConstraint("structured_outputs.regex", o.Regex),
			choiceConstraint("structured_outputs.choice", o.Choice),
			grammarConstraint("structured_outputs.grammar", o.Grammar),
		)
		if o.JSONObject {
			all = append(all, anyObject("structured_outputs.json_object"))
		}
	}
	all = append(all,
		schemaConstraint("guided_json", s.GuidedJSON, false),
		regexConstraint("guided_regex", s.GuidedRegex),
		choiceConstraint("guided_choice", s.GuidedChoice),
		grammarConstraint("guided_grammar", s.GuidedGrammar),
		grammarConstraint("grammar", s.Grammar),
		schemaConstraint("json_schema", s.JSONSchema, false),
	)
	switch all = slices.DeleteFunc(all, func(w *constraint) bool { return w == nil }); len(all) {
	case 0:
		return nil, nil
	case 1:
		return all[0], nil
	}
	return nil, badRequest(all[1].param, "%s and %s both ask for a form of the text: want one", all[0].param, all[1].param)
}

func sourceConstraint(param, kind string, source *string, read func(context.Context, *constrain.Budget, string) (constrain.Form, error)) *constraint {
	if source == nil {
		return nil
	}
	return &constraint{param, kind, *source, func(ctx context.Context, b *constrain.Budget) (constrain.Form, error) { return read(ctx, b, *source) }}
}

func regexConstraint(param string, source *string) *constraint {
	return sourceConstraint(param, "regex", source, constrain.Regex)
}

func grammarConstraint(param string, source *string) *constraint {
	return sourceConstraint(param, "grammar", source, constrain.GBNF)
}

func choiceConstraint(param string, texts []string) *constraint {
	if texts == nil {
		return nil
	}
	source, _ := json.Marshal(texts) // strings always marshal
	return &constraint{param, "choice", string(source), func(ctx context.Context, b *constrain.Budget) (constrain.Form, error) {
		return constrain.Choice(ctx, b, texts...)
	}}
}

func (f *responseFormat) constraint() (*constraint, error) {
	switch f.Type {
	case "text", "":
		return nil, nil
	case "json_object":
		if w := schemaConstraint("response_format.schema", f.Schema, false); w != nil {
			return w, nil
		}
		return anyObject("response_format"), nil
	case "json_schema":
		source, strict := f.Schema, false
		if f.JSONSchema != nil && !null(f.JSONSchema.Schema) {
			source, strict = f.JSONSchema.Schema, f.JSONSchema.Strict
		}
		if w := schemaConstraint("response_format.json_schema.schema", source, strict); w != nil {
			return w, nil
		}
		return nil, badRequest("response_format.json_schema.schema", "response_format.json_schema.schema is missing: want a JSON schema")
	}
	return nil, badRequest("response_format.type", "response_format.type is %s: want \"text\", \"json_object\" or \"json_schema\"", quote(f.Type))
}

func null(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// Some clients send the schema as a JSON string.
func schemaConstraint(param string, source json.RawMessage, strict bool) *constraint {
	if null(source) {
		return nil
	}
	var text string
	if kindOf(source) == "string" && json.Unmarshal(source, &text) == nil {
		source = json.RawMessage(text)
	}
	kind, read := "schema", constrain.Schema
	if strict {
		kind, read = "strict schema", constrain.Strict
	}
	return &constraint{param, kind, string(source), func(ctx context.Context, b *constrain.Budget) (constrain.Form, error) {
		return read(ctx, b, source)
	}}
}

func anyObject(param string) *constraint {
	return &constraint{param, "object", "", func(context.Context, *constrain.Budget) (constrain.Form, error) {
		return constrain.JSON(), nil
	}}
}

const (
	maxGrammars      = 32
	maxGrammarSource = 4 << 20   // of all sources
	maxGrammarBytes  = 256 << 20 // of all grammars with their masks
)

// grammars caches compiled forms by kind and source, the most recently used first.
type grammars struct {
	vocabulary func() *constrain.Vocabulary
	// turn is held while compiling: one at a time, to leave the CPU to generation.
	turn chan struct{}

	// mu guards what follows. It is not held while compiling.
	mu     sync.Mutex
	byKey  map[string]*list.Element // of *compiled
	recent *list.List
	size   int
}

type compiled struct {
	key     string
	grammar constrain.Grammar
}

func newGrammars(tok *tokenizer.Tokenizer) *grammars {
	return &grammars{
		turn:       make(chan struct{}, 1),
		vocabulary: sync.OnceValue(func() *constrain.Vocabulary { return constrain.NewVocabulary(tok) }),
		byKey:      map[string]*list.Element{}, recent: list.New(),
	}
}

// get's errors are the client's, except ctx's cause.
func (g *grammars) get(ctx context.Context, w *constraint) (constrain.Grammar, error) {
	key := w.kind + "\x00" + w.source
	if known := g.find(key); known != nil {
		return known, nil
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if known := g.find(key); known != nil { // compiled meanwhile
		return known, nil
	}
	budget := constrain.NewBudget()
	form, err := w.form(ctx, budget)
	if err != nil {
		return nil, formError(w.param, err)
	}
	grammar, err := constrain.Compile(ctx, budget, form, g.vocabulary())
	if err != nil {
		return nil, formError(w.param, err)
	}
	g.keep(&compiled{key, grammar})
	return grammar, nil
}

func (g *grammars) find(key string) constrain.Grammar {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byKey[key]
	if e == nil {
		return nil
	}
	g.recent.MoveToFront(e)
	return e.Value.(*compiled).grammar
}

func (g *grammars) keep(c *compiled) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byKey[c.key] = g.recent.PushFront(c)
	g.size += len(c.key)
	bytes := 0
	for e := g.recent.Front(); e != nil; e = e.Next() {
		bytes += constrain.Bytes(e.Value.(*compiled).grammar)
	}
	for g.recent.Len() > 1 && (g.recent.Len() > maxGrammars || g.size > maxGrammarSource || bytes > maxGrammarBytes) {
		last := g.recent.Remove(g.recent.Back()).(*compiled)
		delete(g.byKey, last.key)
		g.size -= len(last.key)
		bytes -= constrain.Bytes(last.grammar)
	}
}

func formError(param string, err error) error {
	if known, ok := errors.AsType[*constrain.FormError](err); ok {
		return badRequest(param, "%s can't be kept: %s", param, known.Message)
	}
	return err
}

// compactJSON returns invalid JSON as is.
func compactJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}
