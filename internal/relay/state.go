package relay

import (
	"bytes"
	"strings"

	"github.com/rouse-dev/rouse/api/control"
)

// MaxState bounds the state of a stream that can continue elsewhere, in bytes: some 8,000 tokens.
const MaxState = 48 << 10

// nearly is the bound for a stream that is ended on purpose: its state grows until it ends.
const nearly = MaxState - 4<<10

// State is the state of a stream up to what its client has received, so that another instance can continue it.
type State struct {
	pieces []byte
	piece  []byte // for the event that comes next; nil: none has come
	kept   []byte // memory for events without their comments
	size   int    // of all pieces, if they are only counted
	passed bool   // something was passed on, if pieces are only counted
	lost   bool   // the stream can't continue elsewhere
	moved  bool   // the instance gives way
	told   bool   // there was a piece, even if it is lost now
	goesOn bool   // the answer that comes is to continue, and nothing of it has come
	again  bool   // it has started over instead
}

// Header returns the value of [control.HeaderState] for the instance that answers next.
func (s *State) Header() string {
	s.goesOn, s.piece = len(s.pieces) > 0, nil // a piece whose event did not come does not count
	if len(s.pieces) == 0 {
		return control.StateNew
	}
	return string(s.pieces)
}

// Known reports whether another instance can continue.
func (s *State) Known() bool { return !s.lost }

// Told reports whether an instance has reported any state.
func (s *State) Told() bool { return s.told }

// Again reports whether the instance that was to continue has started over. Nothing of its answer is forwarded.
func (s *State) Again() bool { return s.again }

// Moved reports whether the instance has ended the stream because it gives way, and resets that.
func (s *State) Moved() bool {
	moved := s.moved
	s.moved = false
	return moved
}

// Take removes the state comments from events. A comment counts together with its event. With an event that has none, the
// stream must stay, unless it is an end, an error or a ping.
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
	told := len(out) // everything before it is whole
	open := false
	for line := range bytes.Lines(p) {
		if bytes.HasPrefix(line, []byte(control.MovedComment)) {
			s.moved = true
			break
		}
		if text, found := bytes.CutPrefix(line, []byte(control.StateComment)); found {
			text = bytes.TrimRight(text, "\r\n")
			if at := bytes.IndexByte(text, '\r'); at >= 0 { // a CR ends the comment for parsers of events, and more follows
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

func isData(line []byte) bool {
	for _, other := range []string{":", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(line, []byte(other)) {
			return false
		}
	}
	return len(bytes.TrimRight(line, "\r\n")) > 0
}

// follows returns false if the answer was to continue and starts over.
func (s *State) follows(line []byte) bool {
	piece := s.piece
	s.piece = nil
	begins := bytes.IndexByte(piece, ':') >= 0 // only the first piece of a stream has a colon
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

// bare reports whether a line of data needs no state: the end of a stream, an error, or a keep-alive.
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

func unsent(r rune) bool { return r <= ' ' || r > '~' }

// From starts counting the state of a stream that was requested with header.
func (s *State) From(header string) {
	header = strings.TrimPrefix(header, control.StateScores)
	if header != control.StateNew && !strings.HasPrefix(header, control.StateReplay) { // replayed pieces are all seen again
		s.size = len(header)
	}
}

// See counts the state in events, and reports whether the receiver can continue the stream elsewhere.
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
