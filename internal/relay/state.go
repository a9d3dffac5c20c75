package relay

import (
	"bytes"
	"strings"

	"github.com/rouse-dev/rouse/api/control"
)

// MaxState bounds what is kept of a stream so that it can go on elsewhere, in bytes: some 8,000 tokens.
const MaxState = 48 << 10

// nearly is how much less a stream may have that is ended on purpose: it grows until it ends.
const nearly = MaxState - 4<<10

// State is what an instance has said of a stream that its client has got so far, so that another instance can go on with
// it. It belongs to the goroutine that copies the answer. The zero value is that of a stream that begins.
type State struct {
	pieces []byte
	piece  []byte // of the event that comes; nil: none has come
	kept   []byte // memory of events without their comments
	size   int    // of all pieces, where they are only counted
	passed bool   // something was passed on, where the state is only counted
	lost   bool   // the stream can't go on elsewhere
	moved  bool   // the instance gives way
	told   bool   // there was a piece, be it lost again
	goesOn bool   // the answer that comes is to go on, and nothing of it has come
	again  bool   // it has begun again instead
}

// Header is the value of [control.HeaderState] for an instance whose answer comes next: that it is to tell the state, or the state to go on from.
func (s *State) Header() string {
	s.goesOn, s.piece = len(s.pieces) > 0, nil // a piece whose event did not come is nobody's
	if len(s.pieces) == 0 {
		return control.StateNew
	}
	return string(s.pieces)
}

// Known says whether another instance can go on: all that the client has got is known, be it nothing but comments.
func (s *State) Known() bool { return !s.lost }

// Told says whether an instance has told any of it.
func (s *State) Told() bool { return s.told }

// Again says whether the instance that was to go on has begun again, so that its client would get everything once more: it does not know what a
// state is, or has taken the request for a new one. Nothing of its answer is passed on.
func (s *State) Again() bool { return s.again }

// Moved says whether the instance has ended the stream because it gives way, and forgets that.
func (s *State) Moved() bool {
	moved := s.moved
	s.moved = false
	return moved
}

// Take takes the comments with the state out of events, which the client gets then. An event and its state count together: a
// comment without an event behind it, where the stream was cut between the two, does not count. An event without a state that
// is more than an end, an error or a ping can't be had again from what is known: the stream stays where it is.
func (s *State) Take(p []byte) []byte {
	if !bytes.HasSuffix(p, []byte("\n")) && len(p) > 0 {
		s.lost = true // a part of an event that is too large
	}
	if s.again {
		return nil
	}
	if s.lost && !s.goesOn && s.piece == nil && !bytes.Contains(p, []byte(control.StateComment)) && !bytes.Contains(p, []byte(control.MovedComment)) {
		return p
	}
	out := s.kept[:0]
	told := len(out) // what stands before it is whole
	open := false    // the event has data
	for line := range bytes.Lines(p) {
		if bytes.HasPrefix(line, []byte(control.MovedComment)) {
			s.moved = true
			break // it is the last
		}
		if text, found := bytes.CutPrefix(line, []byte(control.StateComment)); found {
			text = bytes.TrimRight(text, "\r\n")
			if at := bytes.IndexByte(text, '\r'); at >= 0 { // it ends there for who reads events, and more follows
				if s.lost, s.again = true, s.goesOn; s.again {
					break
				}
				out = append(out, line[len(control.StateComment)+at+1:]...)
				told = len(out)
			}
			s.piece = append([]byte{}, text...)
			continue
		}
		if isData(line) && !open && !s.follows(line) {
			break
		}
		open = bytes.HasPrefix(line, []byte("data:")) || open && len(bytes.TrimRight(line, "\r\n")) > 0
		out = append(out, line...)
		if bytes.HasPrefix(line, []byte("event:")) {
			continue // without its data it is no event
		}
		told = len(out)
	}
	out = out[:told]
	s.kept = out
	return out
}

// isData says whether a line is an event's data, or a whole event where events are lines.
func isData(line []byte) bool {
	for _, other := range []string{":", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(line, []byte(other)) {
			return false
		}
	}
	return len(bytes.TrimRight(line, "\r\n")) > 0
}

// follows takes in a line of data with the piece in front of it. It says false where the answer was to go on, and begins again.
func (s *State) follows(line []byte) bool {
	piece := s.piece
	s.piece = nil
	begins := bytes.IndexByte(piece, ':') >= 0 // only the first piece of a stream has what is its own
	switch {
	case piece == nil && bare(line):
		return true
	case s.goesOn && (piece == nil || begins):
		s.again, s.lost = true, true
		return false
	case piece == nil || begins && len(s.pieces) > 0:
		s.lost = true
	default:
		s.add(piece)
	}
	s.goesOn = false
	return true
}

// bare says whether a line of data needs no state: the end of a stream, an error, or what keeps a connection open.
func bare(line []byte) bool {
	data := bytes.TrimSpace(bytes.TrimPrefix(line, []byte("data:")))
	switch string(typeOf(data)) {
	case "ping", "error":
		return true
	}
	return string(data) == "[DONE]" || failed(data)
}

func (s *State) add(piece []byte) {
	s.told = true
	if s.lost || len(s.pieces)+1+len(piece) > MaxState || len(piece) == 0 || bytes.ContainsFunc(piece, unsent) {
		s.lost, s.pieces = true, nil
		return
	}
	if len(s.pieces) > 0 {
		s.pieces = append(s.pieces, ';')
	}
	s.pieces = append(s.pieces, piece...)
}

// unsent says whether a character can't be a header's, or could be read as the end of one.
func unsent(r rune) bool { return r <= ' ' || r > '~' }

// From begins to count the state of a stream that was asked for with header.
func (s *State) From(header string) {
	header = strings.TrimPrefix(header, control.StateScores)
	if header != control.StateNew && !strings.HasPrefix(header, control.StateReplay) { // of what comes again each is seen
		s.size = len(header)
	}
}

// See counts the state in events that are passed on with it, and says whether who takes it out can have the stream go on elsewhere.
func (s *State) See(p []byte) bool {
	s.lost = s.lost || len(p) > 0 && !bytes.HasSuffix(p, []byte("\n"))
	for line := range bytes.Lines(p) {
		if text, found := bytes.CutPrefix(line, []byte(control.StateComment)); found {
			s.size += len(text)
		}
	}
	s.passed = s.passed || len(p) > 0
	return !s.lost && s.size < nearly && (s.size > 0 || !s.passed)
}
