// Package chat turns a conversation into the prompt text that a model was trained on.
//
// A model file contains a Jinja template for that. Package jinja renders it as Hugging Face's transformers would; this package
// makes the template's variables from a request. A file without a template gets ChatML.
//
// What it refuses: templates that use what package jinja does not support, when they are parsed; renderings that come to what only
// values show to be not supported, or that exceed the budget of steps, memory, output or time (a BudgetError); and conversations that
// the template itself refuses with raise_exception: that is a RefusedError, whose reason is meant for the client. A template never panics its caller.
//
// Templates differ in whether the arguments of a call are an object or JSON text, and whether a message that only calls
// tools has the content None or "". New finds out by rendering a conversation of its own, and Render uses what the template takes.
// Tools, calls, results and second system messages that it has no place for become text in messages that it shows: nothing is dropped.
//
// Special tokens. Templates write special tokens as text ("<|im_end|>"), so the prompt must be encoded with
// parseSpecial. A user who writes "<|im_end|>" into a message could then end the turn and speak in another role.
// Options.Guard prevents this: it is applied to every string of the messages and tools before the template sees it.
// Tokenizer.Guard is such a function: it marks the special tokens in a text such that Encode takes them for plain text.
// Without a Guard everything is rendered as it is, as most servers do.
//
// Beginning of text. Many templates write bos_token themselves. The rule for a caller: encode the prompt; if the
// tokenizer asks for a beginning-of-text token and the ids do not begin with it, put it in front.
//
// The life of a template: New parses it once, at load; Render runs it for each request, from many goroutines.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/engine/jinja"
)

// Message is one turn of a conversation, as in OpenAI's API.
type Message struct {
	Role       string
	Content    string // text; the text parts of a content list, put together
	Name       string
	ToolCalls  []ToolCall
	ToolCallID string // role tool: which call this answers
	Reasoning  string // what the model thought before it answered; templates know it as reasoning_content
}

// ToolCall is a model's wish to call a function.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // JSON object; empty is {}, and what is no object becomes the member "unfinished" of one
}

// Options say how to render. The zero value renders the messages only.
type Options struct {
	AddGenerationPrompt bool                       // end with the beginning of the assistant's turn
	Tools               json.RawMessage            // JSON array of tools, as in the request; empty for none
	Extra               map[string]json.RawMessage // further template variables (chat_template_kwargs), as enable_thinking
	Now                 time.Time                  // for strftime_now; zero is the time of the call
	Guard               func(string) string        // applied to all text that comes with the request; nil for none
	// Call writes a call as text, for templates that show none; nil writes {"name": …, "arguments": …}.
	Call func(name, arguments string) string
}

// RefusedError says that the template refuses the conversation (raise_exception): the client's mistake.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string {
	return "the model's chat template refuses this conversation: " + e.Reason
}

// ErrBusy says that other requests take all the memory that the template may have.
var ErrBusy = jinja.ErrBusy

// BudgetError says that the template takes more for a conversation than a template may: it is broken, or hostile, or the
// conversation is far too long. Trying again does not help.
type BudgetError struct{ cause *jinja.BudgetError }

func (e *BudgetError) Error() string {
	return "the model's chat template exceeds its budget with this conversation: " + e.cause.Error()
}

// Template renders conversations for one model. It does not change; Render may be called from many goroutines.
type Template struct {
	bos, eos  string
	source    string
	jinja     *jinja.Template
	callStyle callStyle
	has       places
}

// ChatML is the template of files that carry none.
const ChatML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// New parses a template. An empty source means ChatML. bos and eos are the texts of the special tokens, "" for none. The
// error names the line of what is wrong or not supported.
func New(source, bos, eos string) (*Template, error) {
	if source == "" {
		source = ChatML
	}
	t := &Template{bos: bos, eos: eos, source: source}
	var err error
	t.jinja, err = jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	t.probe()
	return t, nil
}

// Special are the texts of the tokens that begin and end a text, "" for none.
func (t *Template) Special() (bos, eos string) { return t.bos, t.eos }

// Source is the template as the file has it; [ChatML] for a file without one.
func (t *Template) Source() string { return t.source }

// Render returns the prompt of a conversation; it stops when ctx ends. A *RefusedError is the template's own refusal, a
// *BudgetError the end of its budget, [ErrBusy] passes; any other error tells what in the request or the template cannot be rendered.
func (t *Template) Render(ctx context.Context, messages []Message, o Options) (string, error) {
	if o.Guard == nil {
		o.Guard = unguarded
	}
	messages, o = t.placed(messages, o)
	return t.render(ctx, messages, o, jinja.Budget{})
}

func unguarded(s string) string { return s }

func (t *Template) render(ctx context.Context, messages []Message, o Options, within jinja.Budget) (string, error) {
	vars, err := t.variables(messages, o)
	if err != nil {
		return "", err
	}
	text, err := t.jinja.Render(ctx, vars, jinja.Options{Now: o.Now, Budget: within})
	var raised *jinja.RaisedError
	var budget *jinja.BudgetError
	switch {
	case errors.As(err, &raised):
		return "", &RefusedError{Reason: raised.Reason}
	case errors.As(err, &budget):
		return "", &BudgetError{budget}
	case err != nil:
		return "", fmt.Errorf("chat template: %w", err)
	}
	return text, nil
}
