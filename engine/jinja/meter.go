package jinja

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A meter charges a rendering for its steps, memory and output, and ends it at a limit of its budget.
type meter struct {
	ctx    context.Context // a meter belongs to one call of Render
	end    time.Time
	budget Budget
	line   int

	steps, checkAt int
	memory, output int
	depth, walking int

	shared *atomic.Int64 // bytes that all renderings of the template hold; held of them are ours
	held   int
}

const (
	checkEvery = 512     // steps between two checks of the clock and the context
	valueSize  = 16      // bytes of a list's element
	maxWalk    = 500     // levels of a value that is printed, compared or encoded
	alone      = 4 << 20 // bytes of each rendering's own, more than most ever need
	together   = 1 << 30 // bytes that all renderings of a template share beyond that
	portion    = 1 << 20 // unit of the shared bytes
)

func (m *meter) fail(format string, args ...any) {
	panic(errorf(m.line, format, args...))
}

func (m *meter) exceed(limit string) { panic(&BudgetError{m.line, limit}) }

func (m *meter) at(line int) {
	m.line = line
	m.step(1)
}

func (m *meter) step(n int) {
	m.steps += n
	if n < 0 || m.steps > m.budget.Steps {
		m.exceed(grouped(m.budget.Steps) + " steps")
	}
	if m.steps < m.checkAt {
		return
	}
	m.checkAt = m.steps + checkEvery
	if m.ctx.Err() != nil {
		panic(fmt.Errorf("render a chat template: %w", context.Cause(m.ctx)))
	}
	if time.Now().After(m.end) {
		m.exceed(m.budget.Time.String())
	}
}

// grow charges n bytes before they are allocated, and the work for them.
func (m *meter) grow(n int) {
	if n < 0 || n > m.budget.Memory-m.memory {
		m.exceed(grouped(m.budget.Memory) + " bytes of values")
	}
	if n > m.budget.Value {
		m.exceed(grouped(m.budget.Value) + " bytes of one value")
	}
	m.memory += n
	if m.memory > alone && m.memory-alone > m.held {
		m.hold(m.memory - alone - m.held)
	}
	m.step(1 + n>>8)
}

func (m *meter) growList(n int) {
	m.grow(times(n+2, valueSize))
	m.step(n >> 2)
}

// hold takes n bytes of the shared memory. It does not wait: waiting renderings would keep their memory.
func (m *meter) hold(n int) {
	n = (n + portion - 1) / portion * portion
	if m.shared.Add(int64(n)) > together {
		m.shared.Add(-int64(n))
		panic(ErrBusy)
	}
	m.held += n
}

func (m *meter) add(b *strings.Builder, s string) {
	m.grow(len(s))
	if b.Len()+len(s) > m.budget.Value {
		m.exceed(grouped(m.budget.Value) + " bytes of one value")
	}
	b.WriteString(s)
}

// charge charges n bytes of output beside those written, of the template or of a macro or block.
func (m *meter) charge(n, written int) {
	m.output += n
	if m.output > m.budget.Output+m.budget.Memory || written+n > m.budget.Output {
		m.exceed(grouped(m.budget.Output) + " bytes of text")
	}
	m.step(n >> 8)
}

func (m *meter) call(f func()) {
	if m.depth++; m.depth > m.budget.Depth {
		m.exceed(strconv.Itoa(m.budget.Depth) + " calls within calls")
	}
	f()
	m.depth--
}

// walk enters a level of a value; the returned function leaves it.
func (m *meter) walk() func() {
	m.step(1)
	if m.walking++; m.walking > maxWalk {
		m.exceed(strconv.Itoa(maxWalk) + " values within values")
	}
	return func() { m.walking-- }
}

// check fails if a value is undefined.
func (m *meter) check(vs ...any) {
	for _, v := range vs {
		if u, ok := v.(*undefined); ok {
			m.fail("%s", u.message)
		}
	}
}

func (m *meter) text(name string, v any) string {
	s, ok := plain(v).(string)
	if !ok {
		m.check(v)
		m.fail("%s wants a str, not '%s'", name, typeName(v))
	}
	m.step(len(s) >> 6)
	return s
}

// number returns an argument that must be a whole number, limited to ±2**40: no text is that long.
func (m *meter) number(name string, v any) int {
	n, ok := small(v)
	if !ok {
		m.check(v)
		m.fail("%s wants a whole number of 64 bits, not '%s'", name, typeName(v))
	}
	return int(max(min(n, 1<<40), -1<<40))
}

// times returns a*b, or a number above any budget.
func times(a, b int) int {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > 1<<40/b {
		return 1 << 40
	}
	return a * b
}

func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
