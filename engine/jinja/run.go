package jinja

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// run is one rendering.
type run struct {
	ctx    context.Context // a run is one call of Render
	now    time.Time
	end    time.Time
	budget Budget
	root   *scope
	out    *strings.Builder
	line   int // being evaluated

	steps, checkAt int
	memory, output int
	depth, walking int

	shared *atomic.Int64 // what all renderings of the template hold; of it held is ours
	held   int
}

func newRun(ctx context.Context, o Options) *run {
	b := o.Budget.withDefaults()
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	return &run{ctx: ctx, now: now, end: time.Now().Add(b.Time), budget: b, root: &scope{}, out: &strings.Builder{}}
}

// fail ends the rendering with an error of the template or its input.
func (r *run) fail(format string, args ...any) {
	panic(&Error{r.line, shorten(fmt.Sprintf(format, args...))})
}

// exceed ends the rendering at a limit.
func (r *run) exceed(limit string) { panic(&BudgetError{r.line, limit}) }

// checkEvery is how many steps pass between two looks at the clock and the context.
const checkEvery = 512

// step charges n steps.
func (r *run) step(n int) {
	r.steps += n
	if n < 0 || r.steps > r.budget.Steps {
		r.exceed(grouped(r.budget.Steps) + " steps")
	}
	if r.steps < r.checkAt {
		return
	}
	r.checkAt = r.steps + checkEvery
	if r.ctx.Err() != nil {
		panic(fmt.Errorf("render a chat template: %w", context.Cause(r.ctx)))
	}
	if time.Now().After(r.end) {
		r.exceed(r.budget.Time.String())
	}
}

// grow charges n bytes that are about to be made, and the work for them.
func (r *run) grow(n int) {
	if n < 0 || n > r.budget.Memory-r.memory {
		r.exceed(grouped(r.budget.Memory) + " bytes of values")
	}
	if n > r.budget.Value {
		r.tooLarge()
	}
	r.memory += n
	if r.memory > alone && r.memory-alone > r.held {
		r.hold(r.memory - alone - r.held)
	}
	r.step(1 + n>>8)
}

func (r *run) tooLarge() { r.exceed(grouped(r.budget.Value) + " bytes of one value") }

const (
	alone    = 4 << 20 // bytes that a rendering has for itself, which is more than most ever make
	together = 1 << 30 // and those that all have in common
	portion  = 1 << 20 // by which they take from it
)

// hold takes n bytes of what all renderings have in common. It does not wait, for those that wait would hold theirs.
func (r *run) hold(n int) {
	n = (n + portion - 1) / portion * portion
	if r.shared.Add(int64(n)) > together {
		r.shared.Add(-int64(n))
		panic(ErrBusy)
	}
	r.held += n
}

// extend charges n bytes that are about to be appended to b.
func (r *run) extend(b *strings.Builder, n int) {
	r.grow(n)
	if b.Len()+n > r.budget.Value {
		r.tooLarge()
	}
}

// add appends s to b, and charges it.
func (r *run) add(b *strings.Builder, s string) {
	r.extend(b, len(s))
	b.WriteString(s)
}

// reads charges the work of a function that reads its arguments from end to end.
func (r *run) reads(self any, a args) {
	n := textLen(self)
	for _, v := range a.pos {
		n += textLen(v)
	}
	for _, v := range a.values {
		n += textLen(v)
	}
	r.step(n >> 6)
}

func textLen(v any) int {
	s, _ := unmark(v).(string)
	return len(s)
}

// valueSize is the size of an element of a list, in bytes.
const valueSize = 16

// growList charges a list of n elements.
func (r *run) growList(n int) {
	if n < 0 || n > r.budget.Memory/valueSize {
		r.exceed(grouped(r.budget.Memory) + " bytes of values")
	}
	r.grow(n*valueSize + 2*valueSize)
	r.step(n >> 2)
}

// times is a*b, or more than any budget.
func times(a, b int) int {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > 1<<40/b {
		return 1 << 40
	}
	return a * b
}

// write writes output, of the template or of a macro or block.
func (r *run) write(s string) {
	r.output += len(s)
	if r.output > r.budget.Output+r.budget.Memory || r.out.Len()+len(s) > r.budget.Output {
		r.exceed(grouped(r.budget.Output) + " bytes of text")
	}
	r.step(len(s) >> 8)
	r.out.WriteString(s)
}

// capture returns what f writes.
func (r *run) capture(f func()) string {
	outer := r.out
	r.out = &strings.Builder{}
	defer func() { r.out = outer }()
	f()
	s := r.out.String()
	r.grow(len(s))
	return s
}

// call counts a level of calls while f runs.
func (r *run) call(f func()) {
	if r.depth++; r.depth > r.budget.Depth {
		r.exceed(strconv.Itoa(r.budget.Depth) + " calls within calls")
	}
	f()
	r.depth--
}

// maxWalk bounds how deep values nest that are printed, compared or hashed.
const maxWalk = 500

// walk counts a level of a value; r.walking-- leaves it.
func (r *run) walk() {
	r.step(1)
	if r.walking++; r.walking > maxWalk {
		r.exceed(strconv.Itoa(maxWalk) + " values within values")
	}
}

// grouped writes n with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// scope holds the variables of a block, which sees those around it.
type scope struct {
	parent *scope
	vars   []variable
	index  map[string]int // of vars, once they are many
}

type variable struct {
	name  string
	value any
}

// many is how many variables a scope finds by looking at each.
const many = 12

func newScope(parent *scope) *scope { return &scope{parent: parent} }

func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	for i := range s.vars {
		if s.vars[i].name == name {
			return i
		}
	}
	return -1
}

func (s *scope) set(name string, value any) {
	if i := s.find(name); i >= 0 {
		s.vars[i].value = value
		return
	}
	s.vars = append(s.vars, variable{name, value})
	switch {
	case s.index != nil:
		s.index[name] = len(s.vars) - 1
	case len(s.vars) > many:
		s.index = make(map[string]int, 2*many)
		for i := range s.vars {
			s.index[s.vars[i].name] = i
		}
	}
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.vars[i].value, true
		}
	}
	return nil, false
}
