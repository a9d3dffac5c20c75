package cpu

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/rouse-dev/rouse/engine/model"
)

// SharedLogits is the most rows of logits of a batch of several ranks.
const SharedLogits = 1024

const (
	maxRanks = 64
	// patience is how long a rank whose context has ended waits for the others.
	patience = 2 * time.Second
)

var (
	errApart = errors.New("the ranks do not compute the same batch: restart them all")
	errLost  = errors.New("another rank did not come in time: restart them all")
	errOther = errors.New("another rank failed")
)

// exchange is the ranks' shared memory, for results of stages and a barrier. With one rank the results are on the heap.
type exchange struct {
	rank, of int
	mem      []byte
	ctx      context.Context // of the step; only while Forward runs
	words    *words

	att, out, gate, logits []float32

	checks uint64 // calls of agree, equal in all ranks
}

// words is at the beginning of the shared memory, each in its own cache line.
type words struct {
	arrived atomic.Uint32
	_       [60]byte
	passed  atomic.Uint32 // times the barrier has opened; sleepers wait for a change
	_       [60]byte
	asleep  atomic.Uint32 // ranks that sleep until passed changes
	_       [60]byte
	broken  atomic.Uint32 // nonzero: a rank gave up, and none can continue
	_       [60]byte
	stopAt  atomic.Uint64 // the call of agree at which a rank had an error
	_       [56]byte
	batch   [maxRanks]struct {
		hash atomic.Uint64
		_    [56]byte
	}
}

func newExchange(c model.Config, s Shard) (*exchange, error) {
	e := &exchange{rank: s.Rank, of: max(s.Of, 1)}
	if e.of == 1 {
		return e, nil
	}
	out, gate := widths(&c)
	parts := []struct {
		to *[]float32
		n  int
	}{{&e.att, maxStep * c.Heads * c.HeadDim}, {&e.out, maxStep * out}, {&e.gate, maxStep * gate}, {&e.logits, SharedLogits * c.Vocab}}
	const page = 4096
	pages := func(n int) int { return (n + page - 1) / page * page }
	size := pages(int(unsafe.Sizeof(words{})))
	at := size
	for _, p := range parts {
		size += pages(4 * p.n)
	}
	if err := s.Memory.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("size the memory that ranks share: %w", err)
	}
	mem, err := mapShared(s.Memory.Fd(), size, true)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of memory that ranks share: %w", size, err)
	}
	e.mem = mem
	e.words = (*words)(unsafe.Pointer(unsafe.SliceData(mem)))
	for _, p := range parts {
		*p.to = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem[at:]))), p.n)
		at += pages(4 * p.n)
	}
	return e, nil
}

func (e *exchange) close() error {
	if e.mem == nil {
		return nil
	}
	mem := e.mem
	*e = exchange{rank: e.rank, of: e.of}
	return unmap(mem)
}

func (e *exchange) resize(shared *[]float32, own []float32, n int) []float32 {
	if e.of > 1 {
		return (*shared)[:n]
	}
	return resize(own, n)
}

func (e *exchange) begin(hash uint64) error {
	if e.of == 1 {
		return nil
	}
	if e.words == nil {
		return errLost
	}
	e.words.batch[e.rank].hash.Store(hash)
	if err := e.sync(); err != nil {
		return err
	}
	for i := range e.of {
		if e.words.batch[i].hash.Load() != hash {
			e.breakUp()
			return errApart
		}
	}
	return e.sync() // before anyone writes the next hash
}

// agree is a barrier. If any rank has an error, it returns one in all: the rank's own, or errOther.
func (e *exchange) agree(err error) error {
	if e.of == 1 {
		return err
	}
	e.checks++
	if err != nil {
		e.words.stopAt.Store(e.checks)
	}
	if e := e.sync(); e != nil {
		return e
	}
	if err == nil && e.words.stopAt.Load() == e.checks {
		err = errOther
	}
	return err
}

// sync blocks until all ranks have called it. Their earlier writes are visible afterwards.
func (e *exchange) sync() error {
	if e.of == 1 {
		return nil
	}
	w := e.words
	passed := w.passed.Load()
	if w.arrived.Add(1) == uint32(e.of) {
		w.arrived.Store(0)
		w.passed.Add(1)
		if w.asleep.Load() > 0 {
			wakeAll(&w.passed)
		}
	} else if err := e.await(passed); err != nil {
		return err
	}
	if w.broken.Load() != 0 {
		return errLost
	}
	return nil
}

// await spins, then sleeps.
func (e *exchange) await(passed uint32) error {
	w := e.words
	var s spinner
	var ended time.Time // when ctx was seen to have ended
	for w.passed.Load() == passed && w.broken.Load() == 0 {
		if s.spin() {
			continue
		}
		w.asleep.Add(1)
		sleepUntil(&w.passed, passed, 50*time.Millisecond)
		w.asleep.Add(^uint32(0))
		switch {
		case e.ctx.Err() == nil:
		case ended.IsZero():
			ended = time.Now()
		case time.Since(ended) > patience:
			e.breakUp()
			return errLost
		}
	}
	return nil
}

func (e *exchange) breakUp() {
	e.words.broken.Store(1)
	wakeAll(&e.words.passed)
}
