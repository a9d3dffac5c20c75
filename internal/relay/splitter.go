package relay

import (
	"bytes"
	"iter"
)

// Lines returns the lines of p with their ends, which are LF, CRLF or CR.
func Lines(p []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(p) > 0 {
			end := bytes.IndexByte(p, '\n') + 1
			if end == 0 {
				end = len(p)
			}
			if cr := bytes.IndexByte(p[:end], '\r') + 1; cr > 0 && cr < end && p[cr] != '\n' {
				end = cr
			}
			if !yield(p[:end]) {
				return
			}
			p = p[end:]
		}
	}
}

// Splitter finds the ends of events: an empty line for server-sent events (lines end with LF, CRLF or CR), the end of
// a line for lines of JSON. The zero value is ready for server-sent events.
type Splitter struct {
	// Lines means that the stream consists of lines of JSON.
	Lines bool

	within bool // the last line has begun and not ended
	cr     bool // the last byte was a CR, to which an LF belongs
}

// Split processes p, the next bytes, and returns how many of them lie before the end of the last event that ends in
// p; 0: none does.
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
	for line := range Lines(p[at:]) {
		at += len(line)
		text := bytes.TrimRight(line, "\r\n")
		if len(text) == 0 && !s.within {
			end = at
		}
		s.within, s.cr = len(text) == len(line), line[len(line)-1] == '\r'
	}
	return end
}
