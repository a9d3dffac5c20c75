package translate

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api/control"
)

// stateWriter writes the state of a stream between its events, so that another instance can continue it ([control.HeaderState]). A nil one
// writes nothing.
//
// The runtime sends a piece of the state before each chunk, and a chunk's events depend on earlier chunks and it only.
//
//  1. A chunk's first event is preceded by its piece, after those of chunks without events, each further event by the piece more, and each
//     event that ends the answer by the piece last.
//  2. An instance that continues translates all known chunks again, and drops the events that were sent, which the pieces count.
type stateWriter struct {
	lines  bool
	piece  []byte   // the next chunk's
	untold [][]byte // pieces of chunks without events

	chunks int // of the stream that goes on here, still to come again
	events int // sent of the last of them
	ends   int // sent of the answer's end
}

// Pieces, see [stateWriter].
const (
	more = "+"
	last = "e"
)

// newStateWriter replaces the request's header by the runtime's.
func newStateWriter(h http.Header, asked []byte, to shape) *stateWriter {
	state := h.Get(control.HeaderState)
	if state == "" || to.events == nil {
		return nil
	}
	scores := ""
	if to.scored && bytes.Contains(asked, []byte(`"logprobs":true`)) { // the end repeats them
		scores = control.StateScores
	}
	t := &stateWriter{lines: to.lines()}
	if state == control.StateNew {
		h.Set(control.HeaderState, scores+control.StateNew)
		return t
	}
	var known []string
	for piece := range strings.SplitSeq(state, ";") {
		switch piece {
		case more:
			t.events++
		case last:
			t.ends++
		default:
			known = append(known, piece)
			t.chunks, t.events = t.chunks+1, 1
		}
	}
	h.Set(control.HeaderState, scores+control.StateReplay+strings.Join(known, ";"))
	return t
}

// takeComment reports whether a comment is about the state. It keeps a piece, and passes on that the instance hands over.
func (t *stateWriter) takeComment(line []byte, out *output) bool {
	if t == nil {
		return false
	}
	if piece, is := bytes.CutPrefix(line, []byte(control.StateComment)); is {
		t.piece = bytes.Clone(piece)
		return true
	}
	if !bytes.HasPrefix(line, []byte(control.MovedComment)) {
		return false
	}
	out.Write(line)
	out.WriteString(t.separator())
	return true
}

func (t *stateWriter) separator() string {
	if t.lines {
		return "\n"
	}
	return "\n\n"
}

// addChunk puts the state before a chunk's events, which begin at from, and drops those that were sent.
func (t *stateWriter) addChunk(out *output, from int) {
	if t == nil {
		return
	}
	piece, sent := t.piece, 0
	t.piece = nil
	events := t.cutEvents(out, from)
	if t.chunks > 0 {
		if t.chunks--; t.chunks > 0 || t.ends > 0 {
			return
		}
		sent, piece = t.events, []byte(more)
	}
	if len(events) > sent {
		t.write(out, events[sent:], piece, more)
	} else if sent == 0 && piece != nil {
		t.untold = append(t.untold, piece)
	}
}

func (t *stateWriter) addEnd(out *output, from int) {
	if t == nil {
		return
	}
	events := t.cutEvents(out, from)
	t.write(out, events[min(t.ends, len(events)):], []byte(last), last)
}

func (t *stateWriter) cutEvents(out *output, from int) [][]byte {
	events := bytes.SplitAfter(bytes.Clone(out.Bytes()[from:]), []byte(t.separator()))
	out.Truncate(from)
	return slices.DeleteFunc(events, func(e []byte) bool { return len(e) == 0 })
}

// write puts first before the first event and further before the others.
func (t *stateWriter) write(out *output, events [][]byte, first []byte, further string) {
	for i, e := range events {
		piece := further
		if i == 0 {
			piece = string(bytes.Join(append(t.untold, first), []byte(";")))
			t.untold = nil
		}
		out.WriteString(control.StateComment + piece + "\n")
		out.Write(e)
	}
}
