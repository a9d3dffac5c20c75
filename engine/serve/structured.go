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

// structure are the fields that ask for a text of a form: OpenAI's, vLLM's old
// and new ones, and llama.cpp's. At most one form may be asked for.
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

// responseFormat is OpenAI's field; schema is llama.cpp's addition to json_object.
type responseFormat struct {
	Type       string          `json:"type"`
	Schema     json.RawMessage `json:"schema"`
	JSONSchema *struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict bool            `json:"strict"`
	} `json:"json_schema"`
}

// constraint is a form that a request asks for.
type constraint struct {
	param string
	kind  string // with source it identifies the form
	// source is what the client wrote: a schema, a pattern, a grammar, a list of choices.
	source string
	form   func(context.Context, *constrain.Budget) (constrain.Form, error)
}

// constraint returns the one form that is asked for, nil for none.
func (s *structure) constraint() (*constraint, error) {
	var all []*constraint // with a nil for each that is not there
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

// regexConstraint asks for texts that match a pattern; nil: none is given.
func regexConstraint(param string, source *string) *constraint {
	if source == nil {
		return nil
	}
	return &constraint{param, "regex", *source, func(ctx context.Context, b *constrain.Budget) (constrain.Form, error) {
		return constrain.Regex(ctx, b, *source)
	}}
}

// grammarConstraint asks for texts of a GBNF grammar; nil: none is given.
func grammarConstraint(param string, source *string) *constraint {
	if source == nil {
		return nil
	}
	return &constraint{param, "grammar", *source, func(ctx context.Context, b *constrain.Budget) (constrain.Form, error) {
		return constrain.GBNF(ctx, b, *source)
	}}
}

// choiceConstraint asks for one of several texts; nil: none are given.
func choiceConstraint(param string, texts []string) *constraint {
	if texts == nil {
		return nil
	}
	source, _ := json.Marshal(texts) // strings always can be
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

// schemaConstraint is the constraint for a value of a schema: JSON, or JSON in a string, as some clients send it.
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

// Limits of the grammars that are kept.
const (
	maxGrammars      = 32
	maxGrammarSource = 4 << 20   // bytes of all their sources
	maxGrammarBytes  = 256 << 20 // bytes of all of them, with what they have learnt
)

// grammars compiles forms for one vocabulary, and keeps the ones that were used
// last: requests of one client mostly ask for the same.
type grammars struct {
	vocabulary func() *constrain.Vocabulary
	// turn is held while a grammar is compiled: one at a time, so that generation keeps the processors.
	turn chan struct{}

	// mu guards the rest. Compiling happens without it.
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

// get returns the grammar of a constraint. Its errors are the client's, but for the end of ctx.
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
	if known := g.find(key); known != nil { // another request asked for the same meanwhile
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

// find returns a grammar that is kept, nil if there is none.
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

// keep adds a grammar, and drops those that were used least recently until the limits hold.
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

// formError names the field whose form can't be kept.
func formError(param string, err error) error {
	if known, ok := errors.AsType[*constrain.FormError](err); ok {
		return badRequest(param, "%s can't be kept: %s", param, known.Message)
	}
	return err
}

// compactJSON is JSON without blanks; what is no JSON stays as it is.
func compactJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}
