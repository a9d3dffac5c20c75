package relay

import "bytes"

// FirstLine returns the first line of p with its end, which is LF, CRLF or CR.
func FirstLine(p []byte) []byte {
	lf := bytes.IndexByte(p, '\n')
	if lf < 0 {
		lf = len(p)
	}
	if cr := bytes.IndexByte(p[:lf], '\r'); cr >= 0 && cr+1 < lf {
		return p[:cr+1]
	}
	return p[:min(lf+1, len(p))]
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
	for at < len(p) {
		line := FirstLine(p[at:])
		at += len(line)
		text := bytes.TrimRight(line, "\r\n")
		if len(text) == 0 && !s.within {
			end = at
		}
		s.within, s.cr = len(text) == len(line), line[len(line)-1] == '\r'
	}
	return end
}
