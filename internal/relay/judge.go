package relay

import (
	"bytes"
	"iter"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Judge decides whether a stream is complete.
type Judge struct {
	style    api.Stream
	finished bool // the answer has ended; a proper end of the stream must follow
	done     bool // the stream's last event was seen

	open   bool   // the last line was not empty
	within bool   // the last line has not ended
	cr     bool   // the last byte was a CR, to which an LF belongs
	head   []byte // of a line that comes in parts
	tail   []byte // of what was seen of it

	next  int // of the next event, for [api.StreamResponses]
	plain Plain
}

const (
	headSize = 256 // identifies an event
	tailSize = 64  // longer than any text searched for
)

// NewJudge returns a Judge of one stream.
func NewJudge(style api.Stream) Judge { return Judge{style: style} }

// Whole reports whether the stream is complete if it ends here; proper is how the connection ended.
func (j *Judge) Whole(proper bool) bool {
	end := *j
	if j.within { // a last line needs no end
		end.begins(j.head)
	}
	return end.done || (proper && (j.finished || j.style == api.StreamPlain || j.style == api.StreamAgent))
}

// Next returns the sequence number for an event of our own.
func (j *Judge) Next() int { return j.next }

// NextAfter is [Judge.Next] after p, whole events, is seen.
func (j *Judge) NextAfter(p []byte) int {
	end := Judge{next: j.next}
	end.count(p)
	return end.next
}

// Rest returns what must precede an event of our own after an unfinished one.
func (j *Judge) Rest() []byte {
	switch {
	case j.within && j.style != api.StreamLines:
		return []byte("\n\n")
	case j.within || (j.open && j.style != api.StreamLines):
		return []byte("\n")
	}
	return nil
}

// See processes the next bytes, which may be cut anywhere.
func (j *Judge) See(p []byte) {
	if len(p) > 0 && j.cr && p[0] == '\n' {
		p = p[1:]
		j.cr = false
	}
	for line := range Lines(p) {
		text := bytes.TrimRight(line, "\r\n")
		switch {
		case len(text) == len(line):
			j.part(line)
		case j.within:
			j.part(text)
			j.begins(j.head)
			j.within = false
		default:
			j.line(text)
		}
		j.cr = line[len(line)-1] == '\r'
	}
}

func (j *Judge) line(line []byte) {
	j.open = len(line) > 0
	switch {
	case j.done || !j.open:
	case j.style == api.StreamLines:
		j.done = lastLine(line)
	case j.style == api.StreamCompletion && j.plain.Is(line):
	default:
		j.begins(line)
		j.inside(line)
		if j.style == api.StreamCompletion && !j.done && !j.finished {
			j.plain.Learn(line)
		}
	}
}

func (j *Judge) part(p []byte) {
	if !j.within {
		j.within, j.head, j.tail = true, j.head[:0], j.tail[:0]
	}
	j.open = j.open || len(p) > 0
	if j.done || len(p) == 0 {
		return
	}
	j.head = append(j.head, p[:min(len(p), headSize-len(j.head))]...)
	j.inside(p)
	j.tail = append(j.tail, p[:min(len(p), tailSize)]...)
	j.inside(j.tail) // matches across the cut
	if len(p) >= tailSize {
		j.tail = append(j.tail[:0], p[len(p)-tailSize:]...)
	} else if n := len(j.tail); n > tailSize {
		j.tail = append(j.tail[:0], j.tail[n-tailSize:]...)
	}
}

func (j *Judge) inside(p []byte) {
	switch {
	case j.style == api.StreamCompletion && !j.finished:
		j.finished = Finishes(p)
	case j.style == api.StreamLines:
		j.done = j.done || bytes.Contains(p, []byte(`"done":true`))
	case j.style == api.StreamResponses:
		j.count(p)
	}
}

// count takes the largest value of a number that comes in parts.
func (j *Judge) count(p []byte) {
	at := max(0, bytes.LastIndex(p, sequenceNames[0]))
	j.next = max(j.next, number(p[at:], sequenceNames, -1)+1)
}

func (j *Judge) begins(line []byte) {
	switch {
	case j.done:
	case j.style == api.StreamLines:
		j.done = failed(line)
	default:
		if data, found := bytes.CutPrefix(line, []byte("data:")); found {
			data = bytes.TrimSpace(data[:min(len(data), headSize/2)])
			j.done = string(data) == "[DONE]" || failed(data) || j.last(typeOf(data))
		} else if name, found := bytes.CutPrefix(line, []byte("event:")); found {
			name = bytes.TrimSpace(name[:min(len(name), headSize/2)])
			j.done = string(name) == "error" || j.last(name)
		}
	}
}

func (j *Judge) last(name []byte) bool {
	switch string(name) {
	case "response.completed", "response.failed", "response.incomplete":
		return j.style == api.StreamResponses
	case "message_stop":
		return j.style == api.StreamMessages
	case "error":
		return j.style == api.StreamMessages || j.style == api.StreamResponses
	}
	return false
}

// typeOf returns the type of data that begins with {"type":"NAME"….
func typeOf(data []byte) []byte {
	rest, found := after(data, `{"type"`)
	rest, quoted := bytes.CutPrefix(rest, []byte(`"`))
	name, _, closed := bytes.Cut(rest, []byte(`"`))
	if !found || !quoted || !closed {
		return nil
	}
	return name
}

func failed(data []byte) bool {
	rest, found := after(data, `{"error"`)
	return found && len(rest) > 0 && rest[0] != 'n'
}

func after(data []byte, key string) (rest []byte, found bool) {
	rest, found = bytes.CutPrefix(data, []byte(key))
	if found {
		rest, found = colon(rest)
	}
	return rest, found
}

func colon(b []byte) (rest []byte, found bool) {
	rest, found = bytes.CutPrefix(bytes.TrimLeft(b, " \t"), []byte(":"))
	return bytes.TrimLeft(rest, " \t"), found
}

var (
	finishName, stopName = []byte(`"finish_reason"`), []byte(`"stop":true`)
	sequenceNames        = [][]byte{[]byte(`"sequence_number"`)}
)

// Finishes reports whether a line has a finish_reason that is not null, or the "stop":true of llama.cpp's API. In a
// model's text the quotes are escaped.
func Finishes(line []byte) bool {
	return value(line, finishName, `"{`) != nil || Index(line, stopName) >= 0
}

// lastLine reports whether a line of JSON is an error, or has "done":true at its top level.
func lastLine(line []byte) bool {
	if bytes.Contains(line, []byte("true")) && bytes.Contains(line, []byte(`"done"`)) {
		if v, _ := jsonfield.Find(line, "done"); string(v) == "true" {
			return true
		}
	}
	if !bytes.Contains(line, []byte(`"error"`)) {
		return false
	}
	v, found := jsonfield.Find(line, "error")
	return found && string(v) != "null"
}

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

// Splitter finds the ends of events. The zero value is for server-sent events.
type Splitter struct {
	Lines bool

	within bool
	cr     bool // the last byte was a CR, to which an LF belongs
}

// Split returns how many bytes of p, the next ones, belong to events that end in p.
func (s *Splitter) Split(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	if s.Lines {
		return bytes.LastIndexByte(p, '\n') + 1
	}
	if bytes.HasSuffix(p, []byte("\n\n")) {
		*s = Splitter{}
		return len(p)
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

// Asked says what a runtime was asked to report beyond the client's request; it is removed from the answer.
type Asked struct {
	// Chunk means that a chunk at the end, without choices, has the usage.
	Chunk bool
	// Field is in the chunks before it; empty: none.
	Field string
	// Null reports whether a chunk would have Field with null anyway; may be nil.
	Null func(chunk []byte) bool
	// Moves is a field that the usage chunk has instead of the finishing ones; empty: none.
	Moves string
}
