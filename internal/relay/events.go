package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/rouse-dev/rouse/api"
)

// ErrCut means that an answer ended before it was complete.
var ErrCut = errors.New("the answer was cut")

// Events reads a stream of server-sent events (WHATWG HTML, 9.2), or of lines of JSON as in Ollama's API.
type Events struct {
	from  *Source
	split Splitter
	judge Judge
	given int // bytes of the source that were returned
	seen  int // bytes that the splitter has seen

	// Rewrite, if not nil, returns a replacement for events, before the judge sees them.
	Rewrite func(events []byte) []byte
	// AnyEnd means that a clean end of the connection completes the stream.
	AnyEnd bool
}

// NewEvents returns the Events of a source, whose buffer bounds how much of an event is held back.
func NewEvents(from *Source, style api.Stream) *Events {
	return &Events{from: from, split: Splitter{Lines: style == api.StreamLines}, judge: NewJudge(style)}
}

// Number returns the sequence number of an event after those returned.
func (e *Events) Number() int { return e.judge.Next() }

// NumberAfter is [Events.Number] after p, whole events, is returned too.
func (e *Events) NumberAfter(p []byte) int { return e.judge.NextAfter(p) }

// Next blocks until more of the stream may be forwarded: whole events, or a part of one that is too large, until the next
// call. The last data comes with [io.EOF] if the stream is complete, otherwise with [ErrCut].
func (e *Events) Next() ([]byte, error) {
	s := e.from
	s.Drop(e.given)
	e.seen -= e.given
	e.given = 0
	for {
		whole := e.split.Split(s.buf[e.seen:s.n])
		if whole > 0 {
			whole += e.seen
		}
		e.seen = s.n
		if s.err != nil {
			return e.end(whole)
		}
		if whole == 0 && !s.room() {
			whole = s.n
		}
		if e.given = whole; whole > 0 {
			return e.see(s.buf[:whole]), nil
		}
		s.Read()
	}
}

func (e *Events) see(p []byte) []byte {
	if e.Rewrite != nil && len(p) > 0 {
		p = e.Rewrite(p)
	}
	e.judge.See(p)
	return p
}

// end forwards a line without an end only if it completes the stream.
func (e *Events) end(whole int) ([]byte, error) {
	s := e.from
	clean := s.Broken() == nil
	lines := whole + bytes.LastIndexByte(s.buf[whole:s.n], '\n') + 1
	if clean && s.n > lines {
		with := *e
		if p := with.see(s.buf[:s.n]); with.ends(clean) {
			*e = with
			return p, io.EOF
		}
	}
	p := e.see(s.buf[:lines])
	switch {
	case e.ends(clean):
		return p, io.EOF
	case clean:
		return e.closed(p), fmt.Errorf("%w: the stream ended without a finish reason", ErrCut)
	}
	return e.closed(p), fmt.Errorf("%w: %w", ErrCut, s.err)
}

func (e *Events) ends(clean bool) bool { return e.judge.Whole(clean) || clean && e.AnyEnd }

func (e *Events) closed(p []byte) []byte {
	if rest := e.judge.Rest(); rest != nil {
		return append(bytes.Clone(p), rest...)
	}
	return p
}
