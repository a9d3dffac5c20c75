package constrain

import (
	"context"
	"fmt"
	"unsafe"
)

// Budget bounds the work and memory of all forms of one request: functions that take one subtract from it. It belongs
// to one goroutine.
type Budget struct {
	Steps int64 // left; a million steps are some tenths of a second
	Bytes int64 // left
}

// Of ten thousand schemas that people wrote, ten take half of it.
const (
	maxSteps = 8 << 20
	maxBytes = 64 << 20
)

// NewBudget returns the budget of one request.
func NewBudget() *Budget { return &Budget{Steps: maxSteps, Bytes: maxBytes} }

type meter struct {
	ctx  context.Context
	left *Budget
	next int64 // check ctx when this many steps are left
	err  error
}

const lookEvery = 4096

func newMeter(ctx context.Context, b *Budget) *meter {
	if b == nil {
		b = NewBudget()
	}
	return &meter{ctx: ctx, left: b, next: b.Steps}
}

func (m *meter) fail(format string, args ...any) {
	if m.err == nil {
		m.err = formError(format, args...)
	}
}

// spend charges steps and bytes, and reports whether to continue; once false, always false.
func (m *meter) spend(steps, bytes int) bool {
	if m.err != nil {
		return false
	}
	m.left.Steps -= int64(steps)
	m.left.Bytes -= int64(bytes)
	switch {
	case m.left.Steps < 0:
		m.left.Steps = 0
		m.fail("it is too large: it takes more than the %d steps of work that one request may have; want fewer alternatives, less repetition or smaller limits", maxSteps)
	case m.left.Bytes < 0:
		m.left.Bytes = 0
		m.fail("it is too large: it takes more than the %d MiB of memory that one request may have; want fewer alternatives, less repetition or smaller limits", maxBytes>>20)
	case m.left.Steps <= m.next:
		m.next = m.left.Steps - lookEvery
		if m.ctx.Err() != nil {
			m.err = fmt.Errorf("compile a form: %w", context.Cause(m.ctx))
		}
	}
	return m.err == nil
}

const (
	exprSize  = 64 // a node of a form, with its share of a slice
	placeSize = int(unsafe.Sizeof(place{}))
	arcSize   = 2 * int(unsafe.Sizeof(arc{})) // lists grow by doubling
)
