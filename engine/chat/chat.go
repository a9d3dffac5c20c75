// Package chat turns a conversation into the prompt text that a model was trained on.
//
// A model file contains a Jinja template for that. Package jinja renders it like Hugging Face's transformers; this
// package makes the template's variables from a request. A file without a template uses ChatML.
//
// New rejects templates that use unsupported Jinja features. Render rejects unsupported operations that only show with
// values, and renderings that exceed the budget of steps, memory, output or time (a BudgetError). If the template
// itself rejects a conversation with raise_exception, the error is a RefusedError, whose reason is meant for the
// client. A template never causes a panic.
//
// Templates differ in whether a call's arguments are an object or JSON text, and whether a message that only calls
// tools has the content None or "". New probes this with its own conversations, and Render uses what the template
// supports. Tools, calls, results and second system messages that the template would drop become text in other
// messages: nothing is lost.
//
// Special tokens. Templates write special tokens as text ("<|im_end|>"), so the prompt must be encoded with
// parseSpecial. A user who writes "<|im_end|>" into a message could then end the turn and speak in another role.
// Options.Guard prevents this: it is applied to every string of the messages and tools before the template sees it.
// Tokenizer.Guard is such a function: it marks the special tokens in a text so that Encode treats them as plain text.
// Without a Guard everything is rendered as is, as most servers do.
//
// Beginning of text. Many templates write bos_token themselves. So the caller encodes the prompt, and prepends the
// beginning-of-text token only if the tokenizer asks for one and the ids do not begin with it.
//
// The life of a template: New parses it once, at load; Render runs it for each request, from many goroutines.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/engine/jinja"
)

// Message is one turn of a conversation, as in OpenAI's API.
type Message struct {
	Role       string
	Content    string // the text; text parts of a content list are concatenated
	Name       string
	ToolCalls  []ToolCall
	ToolCallID string // role tool: the call that this answers
	Reasoning  string // the model's reasoning before the answer; reasoning_content in templates
}

// ToolCall is a function call by the model.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // JSON object; empty means {}; any other text becomes the member "unfinished" of an object
}

// Options configure a rendering. The zero value renders the messages only.
type Options struct {
	AddGenerationPrompt bool                       // end with the beginning of the assistant's turn
	Tools               json.RawMessage            // JSON array of tools, as in the request; empty for none
	Extra               map[string]json.RawMessage // further template variables (chat_template_kwargs), such as enable_thinking
	Now                 time.Time                  // for strftime_now; zero: the current time
	Guard               func(string) string        // applied to all text from the request; nil: none
	// Call formats a call as text, for templates that show none; nil writes {"name": …, "arguments": …}.
	Call func(name, arguments string) string
}

// RefusedError is returned if the template rejects the conversation (raise_exception): a client error.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string {
	return "the model's chat template refuses this conversation: " + e.Reason
}

// ErrBusy is returned while other requests use all the memory for templates.
var ErrBusy = jinja.ErrBusy

// BudgetError is returned if rendering exceeds the budget: the template is broken or hostile, or the conversation is
// far too long. Retrying does not help.
type BudgetError struct{ cause *jinja.BudgetError }

func (e *BudgetError) Error() string {
	return "the model's chat template exceeds its budget with this conversation: " + e.cause.Error()
}

// Template renders conversations for one model. It is immutable and safe for many goroutines.
type Template struct {
	bos, eos  string
	source    string
	jinja     *jinja.Template
	callStyle callStyle
	has       places
}

// ChatML is the template for files without one.
const ChatML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// New parses a template. An empty source means ChatML. bos and eos are the texts of the special tokens, "" for none.
// Errors name the line of the invalid or unsupported code.
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
	t.callStyle.thinking = strings.Contains(source, "message.thinking")
	return t, nil
}

// Special returns the texts of the tokens that begin and end a text, "" for none.
func (t *Template) Special() (bos, eos string) { return t.bos, t.eos }

// Source returns the template's source; [ChatML] for a file without one.
func (t *Template) Source() string { return t.source }

// Render returns the prompt of a conversation; it stops when ctx ends. Errors: a *RefusedError if the template rejects
// the conversation, or would drop a message of a role of its own, a *BudgetError beyond the budget, and [ErrBusy], which is
// temporary. Other errors name what cannot be rendered.
func (t *Template) Render(ctx context.Context, messages []Message, o Options) (string, error) {
	if o.Guard == nil {
		o.Guard = unguarded
	}
	messages, o = t.placed(messages, o)
	text, err := t.render(ctx, messages, o, jinja.Budget{})
	other := func(m Message) bool { return !slices.Contains(roles, m.Role) }
	if err != nil || !slices.ContainsFunc(messages, other) {
		return text, err
	}
	messages = slices.Clone(messages)
	for i, m := range messages {
		if other(m) {
			messages[i].Content = fmt.Sprintf("needle%dbodkin", i)
		}
	}
	shown, err := t.render(ctx, messages, o, jinja.Budget{})
	for _, m := range messages {
		if err == nil && other(m) && !strings.Contains(shown, m.Content) {
			err = &RefusedError{Reason: fmt.Sprintf("it shows no message of the role %.40q", m.Role)}
		}
	}
	return text, err
}

// roles are those that templates know; what one does not show of them is placed elsewhere.
var roles = strings.Fields("system user assistant tool")

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
