// Package stream reads the two kinds of streams in which model servers answer:
// server-sent events (WHATWG HTML, 9.2) and lines of JSON, as in Ollama's own
// API. Who passes a stream on uses it to know two things:
//
//   - [Splitter]: where an event ends, so that clients get whole events, at once;
//   - [Judge]: whether the stream ended whole. Client libraries take any end of a
//     connection for success, so one that is cut must be told by an event,
//     [api.Stream.Error].
//
// The life of a stream:
//
//  1. Bytes are read. [Splitter.Split] says how many of them end whole events;
//     those are passed on, and shown to [Judge.See]. The rest waits for the next read.
//  2. The stream ends. [Judge.Whole] says whether it may end here.
//  3. If not, the event that is open is closed and the error event is written.
//
// What the package sees is never changed or copied. Its memory is a few bytes
// per stream, whatever a server sends. Nothing here is safe for many goroutines.
package stream

import "bytes"

// Splitter finds the ends of events. Of server-sent events that is an empty line
// (lines end with LF, CRLF or CR), of lines of JSON the end of a line. The zero
// value is one for server-sent events at the beginning of a stream.
type Splitter struct {
	// Lines says that the stream consists of lines of JSON.
	Lines bool

	within bool // the last line has begun and not ended
	cr     bool // the last byte was a CR, to which an LF belongs
}

// Split goes on with p, the bytes that follow those it has seen, and returns how
// many of them lie before the end of the last event that ends in p: 0 if none does.
func (s *Splitter) Split(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	if s.Lines {
		return bytes.LastIndexByte(p, '\n') + 1
	}
	at, end := 0, 0
	if s.cr && p[0] == '\n' {
		at = 1
	}
	s.cr = false
	crs := bytes.IndexByte(p, '\r') >= 0
	for at < len(p) {
		n := bytes.IndexByte(p[at:], '\n')
		if crs {
			n = bytes.IndexAny(p[at:], "\r\n")
		}
		if n < 0 {
			s.within = true
			break
		}
		empty := n == 0 && !s.within
		s.within = false
		if at += n + 1; p[at-1] == '\r' {
			if s.cr = at == len(p); !s.cr && p[at] == '\n' {
				at++
			}
		}
		if empty {
			end = at
		}
	}
	return end
}
