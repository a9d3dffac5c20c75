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
	passed bool   // the client has got something
	lost   bool   // the stream can't go on elsewhere
	moved  bool   // the instance gives way
	told   bool   // there was a piece, be it lost again
}

// Header is the value of [control.HeaderState] for an instance: that it is to tell the state, or the state to go on from.
func (s *State) Header() string {
	if len(s.pieces) == 0 {
		return control.StateNew
	}
	return string(s.pieces)
}

// Known says whether another instance can go on: all that the client has got is known, be it nothing.
func (s *State) Known() bool { return !s.lost && (len(s.pieces) > 0 || !s.passed) }

// Told says whether an instance has told any of it.
func (s *State) Told() bool { return s.told }

// Moved says whether the instance has ended the stream because it gives way, and forgets that.
func (s *State) Moved() bool {
	moved := s.moved
	s.moved = false
	return moved
}

// Take takes the comments with the state out of events, which the client gets then. An event and its state count together: a
// comment without an event behind it, where the stream was cut between the two, does not count.
func (s *State) Take(p []byte) []byte {
	if !bytes.HasSuffix(p, []byte("\n")) && len(p) > 0 {
		s.lost = true // a part of an event that is too large
	}
	if s.piece == nil && !bytes.Contains(p, []byte(control.StateComment)) && !bytes.Contains(p, []byte(control.MovedComment)) {
		s.passed = s.passed || len(p) > 0
		return p
	}
	out := s.kept[:0]
	told := len(out) // what stands before it is whole
	for line := range bytes.Lines(p) {
		if bytes.HasPrefix(line, []byte(control.MovedComment)) {
			s.moved = true
			break // it is the last
		}
		if text, found := bytes.CutPrefix(line, []byte(control.StateComment)); found {
			s.piece = append([]byte{}, bytes.TrimRight(text, "\r\n")...)
			continue
		}
		out = append(out, line...)
		if bytes.HasPrefix(line, []byte("event:")) {
			continue // without its data it is no event
		}
		told = len(out)
		if s.piece != nil && (bytes.HasPrefix(line, []byte("data:")) || line[0] == '{') {
			s.add(s.piece)
			s.piece = nil
		}
	}
	out = out[:told]
	s.kept, s.passed = out, s.passed || len(out) > 0
	return out
}

func (s *State) add(piece []byte) {
	s.told = true
	if s.lost || len(s.pieces)+1+len(piece) > MaxState {
		s.lost, s.pieces = true, nil
		return
	}
	if len(s.pieces) > 0 {
		s.pieces = append(s.pieces, ';')
	}
	s.pieces = append(s.pieces, piece...)
}

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
