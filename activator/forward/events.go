package forward

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// Kind is what an event stream must end with to be complete.
type Kind int

// Kinds of streams.
const (
	Opaque    Kind = iota // any clean end is an end
	Chat                  // OpenAI's chat and text completions: a finish_reason, or [DONE]
	Responses             // OpenAI's responses: response.completed, .failed or .incomplete
	Messages              // Anthropic's messages: message_stop
)

// eventLimit bounds one event that is kept back until it is whole; of a longer one the pieces are passed on.
const eventLimit = 16 << 20

// copyEvents is Copy for server-sent events.
func (a *Answer) copyEvents(sink Sink) error {
	end := Ending{kind: a.kind}
	for {
		last := errors.Is(a.err, io.EOF)
		n := Whole((*a.buf)[:a.n])
		end.See((*a.buf)[:n])
		switch {
		case last && n < a.n: // an event without its blank line: pass it on if it completes the stream
			if end.See((*a.buf)[n:a.n]); end.Complete() {
				n = a.n
			}
		case n == 0 && a.n >= eventLimit:
			n = a.n
			end.kind = Opaque // its end can't be seen any more
		}
		if err := a.hand(sink, n, true); err != nil {
			return err
		}
		switch {
		case last && end.Complete():
			return nil
		case last:
			return errors.Join(ErrCut, errors.New("the stream ended without a finish reason"))
		case a.err != nil && end.done:
			return nil // the client has its last event
		case a.err != nil:
			return errors.Join(ErrCut, a.err)
		}
		a.room()
		a.read()
	}
}

// hand passes the first n bytes of the buffer on.
func (a *Answer) hand(sink Sink, n int, flush bool) error {
	if n == 0 {
		return nil
	}
	if _, err := sink.Write((*a.buf)[:n]); err != nil {
		return errors.Join(ErrClient, err)
	}
	if flush {
		if err := sink.Flush(); err != nil {
			return errors.Join(ErrClient, err)
		}
	}
	a.n = copy(*a.buf, (*a.buf)[n:a.n])
	return nil
}

// Whole returns how many bytes at the start of b are whole events: up to and
// with the last blank line. Lines end with LF, CRLF or CR (WHATWG HTML, 9.2.5).
func Whole(b []byte) int {
	for i := len(b) - 1; i > 0; i-- {
		switch b[i] {
		case '\n':
			switch b[i-1] {
			case '\n':
				return i + 1
			case '\r':
				if i >= 2 && (b[i-2] == '\n' || b[i-2] == '\r') {
					return i + 1
				}
			}
		case '\r':
			// The last byte may be the first half of a CRLF: the next read says.
			if i+1 < len(b) && b[i+1] != '\n' && (b[i-1] == '\r' || b[i-1] == '\n') {
				return i + 1
			}
		}
	}
	return 0
}

// Ending watches whole events for the one that makes a stream complete.
type Ending struct {
	kind     Kind
	finished bool // an event that ends the answer was seen
	done     bool // nothing follows it: [DONE], or an error
}

// Complete says whether the stream may end here.
func (e *Ending) Complete() bool { return e.kind == Opaque || e.finished || e.done }

// See looks at whole events.
func (e *Ending) See(events []byte) {
	switch e.kind {
	case Chat:
		e.finished = e.finished || finishReason(events)
		if bytes.Contains(events, []byte("[DONE]")) {
			e.done = e.done || dataIs(events, "[DONE]")
		}
	case Responses:
		e.done = e.done || hasField(events, "event", "response.completed") ||
			hasField(events, "event", "response.failed") || hasField(events, "event", "response.incomplete")
	case Messages:
		e.done = e.done || hasField(events, "event", "message_stop")
	}
	if !e.done && bytes.Contains(events, []byte("error")) {
		e.done = dataStarts(events, `{"error"`) || hasField(events, "event", "error")
	}
}

// finishReason finds "finish_reason": followed by a string. Inside a JSON
// string the quotes would be escaped, so text that a model wrote can't match.
func finishReason(b []byte) bool {
	const field = `"finish_reason"`
	for {
		at := bytes.Index(b, []byte(field))
		if at < 0 {
			return false
		}
		b = bytes.TrimLeft(b[at+len(field):], " \t")
		if len(b) > 0 && b[0] == ':' {
			if v := bytes.TrimLeft(b[1:], " \t"); len(v) > 0 && v[0] == '"' {
				return true
			}
		}
	}
}

// fieldValue returns the value if line is the named field.
func fieldValue(line []byte, name string) (value []byte, ok bool) {
	if len(line) <= len(name) || string(line[:len(name)]) != name || line[len(name)] != ':' {
		return nil, false
	}
	return bytes.TrimPrefix(line[len(name)+1:], []byte(" ")), true
}

// anyField says whether want holds for the value of any field with this name.
func anyField(events []byte, name string, want func([]byte) bool) bool {
	for len(events) > 0 {
		line := events
		if at := bytes.IndexAny(events, "\r\n"); at >= 0 {
			line, events = events[:at], events[at+1:]
		} else {
			events = nil
		}
		if v, found := fieldValue(line, name); found && want(v) {
			return true
		}
	}
	return false
}

func hasField(events []byte, name, value string) bool {
	return anyField(events, name, func(v []byte) bool { return string(v) == value })
}

func dataIs(events []byte, value string) bool { return hasField(events, "data", value) }

func dataStarts(events []byte, start string) bool {
	return anyField(events, "data", func(v []byte) bool { return bytes.HasPrefix(v, []byte(start)) })
}

// appendMillis appends d in milliseconds with three decimals at most.
func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', -1, 64)
}
