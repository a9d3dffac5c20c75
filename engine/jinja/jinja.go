// Package jinja renders chat templates: the part of Jinja2 that the templates in model files use, with Python's values.
//
// Templates run as in Hugging Face's transformers: in an ImmutableSandboxedEnvironment with trim_blocks,
// lstrip_blocks, loop controls and {% generation %}, without HTML escapes, with tojson as json.dumps, raise_exception and
// strftime_now. A prompt is the one that Python would write, byte for byte, or an error.
//
// Parse refuses features that the templates of models do not use, and names the line. These are **, recursive loops,
// numbers beyond 64 bits, and tags, filters, tests, functions and methods of Jinja2 and Python that are not in the
// tables here. In a branch of a condition, an unknown filter or test is an error only when a rendering reaches it, as
// in Python. Other errors occur only in a rendering: attributes of a type, results beyond 64 bits, most uses of text
// that went through safe, and operations that the sandbox refuses.
//
// A template comes with a model file, and is untrusted. A [Budget] bounds the steps, the memory that values take
// together, each of them, the output, the depth and the time of a rendering; the context is asked every few hundred steps.
// Work is charged before it is done: 'x' * n costs n bytes before the text is made. All renderings of a template that are
// under way have 1 GiB together, beside the first 4 MiB of each.
//
// The life of a template:
//
//  1. [Parse] makes functions of its source, once, at load.
//  2. [Template.Render] runs them for a request, with values that [FromJSON] and the constructors made. Many goroutines
//     may render one template; values are read, never written.
//  3. Inside, a failure is a panic with an error of the package, which Render returns.
package jinja

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// maxSource is the most bytes that a template may have.
const maxSource = 1 << 18

// A RaisedError is a call of raise_exception: the template refuses its input.
type RaisedError struct{ Reason string }

func (e *RaisedError) Error() string { return e.Reason }

// A BudgetError reports that a rendering exceeded its budget.
type BudgetError struct {
	Line  int
	Limit string // which one, as "5,000,000 steps"
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("line %d: more than %s", e.Line, e.Limit)
}

// ErrBusy means that the current renderings use all the memory of the template: a retry helps.
var ErrBusy = errors.New("other requests take all the memory that the chat template may have: try again")

// An Error reports a construct that is not supported, or an exception that Python would have raised.
type Error struct {
	Line    int
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

func errorf(line int, format string, args ...any) *Error {
	return &Error{line, shorten(fmt.Sprintf(format, args...))}
}

// Budget bounds a rendering. A zero field means its default.
type Budget struct {
	Steps  int           // of evaluation; 5 million
	Memory int           // bytes of values made, whether or not they are still in use; 512 MiB
	Value  int           // bytes of one text or list; 32 MiB
	Output int           // bytes; 8 MiB
	Depth  int           // calls and recursive loops within each other; 200
	Time   time.Duration // 10 s
}

func (b Budget) withDefaults() Budget {
	return Budget{
		Steps: cmp.Or(b.Steps, 5_000_000), Memory: cmp.Or(b.Memory, 512<<20), Value: cmp.Or(b.Value, 32<<20),
		Output: cmp.Or(b.Output, 8<<20), Depth: cmp.Or(b.Depth, 200), Time: cmp.Or(b.Time, 10*time.Second),
	}
}

// Template is a parsed template. It is safe for many goroutines.
type Template struct {
	body block
	held atomic.Int64 // bytes that the current renderings hold together
}

// Parse parses a template. Its error is a *Error.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, errorf(1, "the template has %d bytes: at most %d are read", len(source), maxSource)
	}
	defer func() { err = caught(recover(), err, 1) }()
	return &Template{body: parse(lex(source))}, nil
}

// Options are the options of a rendering. The zero value means the defaults.
type Options struct {
	Budget Budget
	Now    time.Time // for strftime_now; zero is the time of the call
}

// Render renders t with variables, whose values are nil, bool, int64, float64, string, *List, *Dict or values from
// FromJSON. It is bounded by the budget and ctx. Its errors are *RaisedError, *BudgetError and *Error, or [ErrBusy];
// a cancelled context ends it with the context's cause.
func (t *Template) Render(ctx context.Context, variables map[string]any, o Options) (text string, err error) {
	b := o.Budget.withDefaults()
	r := &run{meter: meter{ctx: ctx, end: time.Now().Add(b.Time), budget: b, shared: &t.held}, now: o.Now, root: &scope{}, out: &strings.Builder{}}
	if r.now.IsZero() {
		r.now = time.Now()
	}
	defer func() {
		t.held.Add(-int64(r.held))
		err = caught(recover(), err, r.line)
	}()
	for name, value := range variables {
		r.root.set(name, value)
	}
	t.body.run(r, newScope(r.root))
	return r.out.String(), nil
}

// caught returns the error that a panic carried. A fault of our own becomes an error too, because a template that
// triggers one must not end the connection of its client without an answer.
func caught(p any, err error, line int) error {
	switch p := p.(type) {
	case nil:
		return err
	case runtime.Error:
		return &Error{line, "internal fault: " + p.Error()}
	case error:
		return p
	}
	panic(p)
}

// shorten removes the middle of a long message.
func shorten(s string) string {
	const half = 150
	if len(s) <= 2*half {
		return s
	}
	return strings.ToValidUTF8(s[:half]+" ... "+s[len(s)-half:], "")
}
