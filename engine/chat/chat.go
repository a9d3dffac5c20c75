// Package chat turns a conversation into the prompt text that a model was trained on, by the model file's Jinja
// template, or ChatML. A template never causes a panic.
//
// Templates differ in whether a call's arguments are an object or text, and a message of calls only has the content
// None or "": New probes this. Tools, calls, results and second system messages that a template would drop become text
// in other messages.
//
// Templates write special tokens as text ("<|im_end|>"), so prompts are encoded with parseSpecial. Options.Guard keeps
// users from ending their turn so: it is applied to every string of the request. See Tokenizer.Guard.
//
// Many templates write bos_token: the caller prepends the beginning-of-text token only if the tokenizer asks for it and
// the ids do not begin with it.
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

// Message is a turn, as in OpenAI's API.
type Message struct {
	Role       string
	Content    string // text parts are concatenated
	Name       string
	ToolCalls  []ToolCall
	ToolCallID string // of role tool: the call that this answers
	Reasoning  string // before the answer; reasoning_content in templates
}

// ToolCall is the model's.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // a JSON object; "": {}; other text becomes an object's member "unfinished"
}

// Options configure a rendering.
type Options struct {
	AddGenerationPrompt bool                       // begin the assistant's turn
	Tools               json.RawMessage            // a JSON array, as in the request
	Extra               map[string]json.RawMessage // further variables (chat_template_kwargs)
	Now                 time.Time                  // for strftime_now; zero: the current time
	Guard               func(string) string        // applied to all text from the request; nil: none
	// Call writes a call as text, for templates that show none; nil: {"name": …, "arguments": …}.
	Call func(name, arguments string) string
}

// RefusedError means that the template rejects the conversation (raise_exception). Reason is for the client.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string {
	return "the model's chat template refuses this conversation: " + e.Reason
}

// ErrBusy means that other requests use all the memory for templates.
var ErrBusy = jinja.ErrBusy

// BudgetError means that rendering exceeds the budget of steps, memory, output or time. Retrying does not help.
type BudgetError struct{ cause *jinja.BudgetError }

func (e *BudgetError) Error() string {
	return "the model's chat template exceeds its budget with this conversation: " + e.cause.Error()
}

// Template is of one model. It is safe for many goroutines.
type Template struct {
	bos, eos  string
	source    string
	jinja     *jinja.Template
	callStyle callStyle
	has       places
}

// ChatML is the template of files without one.
const ChatML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// New parses a template; "": ChatML. bos and eos are the special tokens' texts, or "". Errors name the line of invalid
// or unsupported code.
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

// Special returns the special tokens' texts.
func (t *Template) Special() (bos, eos string) { return t.bos, t.eos }

// Source returns the template's source.
func (t *Template) Source() string { return t.source }

// Render returns a conversation's prompt; it stops when ctx ends. It fails with a *RefusedError if the template rejects
// the conversation or drops a message of an unusual role, a *BudgetError, [ErrBusy], or what can't be rendered.
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

// What a template does not show of roles is placed elsewhere.
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
