package relay

import (
	"context"
	"errors"
	"io"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// Memory is an account of memory. Take charges bytes or returns why it cannot; Give returns bytes.
type Memory interface {
	Take(ctx context.Context, bytes int64) error
	Give(bytes int64)
}

// Source reads an answer's body into its own buffer.
type Source struct {
	from    io.Reader
	ctx     context.Context
	memory  Memory // nil: nothing is charged
	largest int
	charged int64 // of the buffer, if it has grown

	buf []byte
	n   int   // bytes in buf that were not dropped
	err error // why reading ended; io.EOF for a clean end
}

// NewSource returns a Source with a buffer of size bytes, which may grow to largest. Growth is charged to memory,
// with the exchange's context ctx; nil: nothing is charged.
func NewSource(ctx context.Context, from io.Reader, size, largest int, memory Memory) *Source {
	return &Source{from: from, ctx: ctx, memory: memory, largest: max(size, largest), buf: inbound.Grab(int64(size))}
}

// Bytes returns the bytes that were read and not dropped. They are valid until the next call of another method.
func (s *Source) Bytes() []byte { return s.buf[:s.n] }

// Err returns why reading ended: io.EOF for a clean end; nil: it has not.
func (s *Source) Err() error { return s.err }

// Broken returns Err, but nil for a clean end.
func (s *Source) Broken() error {
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// Drop removes the first n bytes.
func (s *Source) Drop(n int) {
	if n > 0 {
		s.n = copy(s.buf, s.buf[n:s.n])
	}
}

// Read reads once into the free part of the buffer, and blocks until something comes.
func (s *Source) Read() {
	k, err := s.from.Read(s.buf[s.n:])
	s.n += k
	s.err = err
}

// Fill reads until there are want bytes, the body ends, or the buffer cannot grow.
func (s *Source) Fill(want int) {
	for s.n < want && s.err == nil && s.room() {
		s.Read()
	}
}

// room makes room for at least one byte and reports whether it could.
func (s *Source) room() bool {
	size := len(s.buf)
	if s.n < size {
		return true
	}
	if size >= s.largest {
		return false
	}
	next := min(2*size, s.largest)
	if s.memory != nil {
		if s.memory.Take(s.ctx, int64(next)) != nil {
			return false
		}
	}
	larger := inbound.Grab(int64(next))
	copy(larger, s.buf)
	inbound.GiveBack(s.buf)
	s.buf = larger
	s.give()
	s.charged = int64(next)
	return true
}

func (s *Source) give() {
	if s.memory != nil && s.charged > 0 {
		s.memory.Give(s.charged)
	}
	s.charged = 0
}

// Close releases the buffer. It does not close the body.
func (s *Source) Close() {
	if s.buf != nil {
		inbound.GiveBack(s.buf)
		s.buf, s.n = nil, 0
		s.give()
	}
}
