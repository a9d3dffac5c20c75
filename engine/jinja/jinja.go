// Package jinja renders chat templates: the part of Jinja2 that the templates in model files use, with Python's
// values. They run as in Hugging Face's transformers: in an ImmutableSandboxedEnvironment with trim_blocks,
// lstrip_blocks, loop controls and {% generation %}, without HTML escapes, with tojson as json.dumps, raise_exception
// and strftime_now. A prompt is the one that Python would write, byte for byte, or an error.
//
// Parse refuses, with the line, what the templates of models do not use. In a branch of a condition, an unknown
// filter or test is an error only when a rendering reaches it, as in Python.
//
// A template is untrusted. A [Budget] bounds steps, memory, output, depth and time of a rendering; work is charged
// before it is done. The current renderings of a template share 1 GiB, beside the first 4 MiB of each.
//
// Inside, a failure is a panic with an error of the package, which Parse and Render return.
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

const maxSource = 1 << 18

// A RaisedError is a call of raise_exception: the template refuses its input.
type RaisedError struct{ Reason string }

func (e *RaisedError) Error() string { return e.Reason }

// A BudgetError reports that a rendering exceeded its budget.
type BudgetError struct {
	Line  int
	Limit string // as "5,000,000 steps"
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
	Steps  int           // 5 million
	Memory int           // bytes of all values made, still in use or not; 512 MiB
	Value  int           // bytes of one text or list; 32 MiB
	Output int           // bytes; 8 MiB
	Depth  int           // calls within calls; 200
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
	held atomic.Int64 // bytes of the current renderings
}

// Parse parses a template. Its error is a *Error.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, errorf(1, "the template has %d bytes: at most %d are read", len(source), maxSource)
	}
	defer func() { err = caught(recover(), err, 1) }()
	return &Template{body: parse(lex(source))}, nil
}

// Options are the options of a rendering.
type Options struct {
	Budget Budget
	Now    time.Time // for strftime_now; zero is the time of the call
}

// Render renders t with variables, which it does not change: nil, bool, int64, float64, string, *List, *Dict or
// values from FromJSON. Its errors are *RaisedError, *BudgetError, *Error, [ErrBusy], or the context's cause.
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

// caught returns the error that a panic carried. A fault of our own becomes an error too: a template must not end its
// client's connection without an answer.
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

func shorten(s string) string {
	const half = 150
	if len(s) <= 2*half {
		return s
	}
	return strings.ToValidUTF8(s[:half]+" ... "+s[len(s)-half:], "")
}
