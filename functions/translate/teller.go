package translate

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api/control"
)

// teller tells the state of a stream on its way through, so that another instance can go on with it ([control.HeaderState]). nil: it is not told.
//
// A chunk of the runtime's, which has a piece of the state in front of it, becomes events, any number of them. They follow from the chunks before
// it and from it alone. So:
//
//  1. The first of its events has the piece in front of it, behind those of chunks that became none. Each further one has the piece more,
//     and each of those that end the answer the piece last.
//  2. An instance that goes on has the runtime send all chunks again that are known, and translates them again. Of the events it sends those that
//     were not sent before: how many were, the pieces say.
type teller struct {
	lines  bool
	piece  []byte   // of the chunk that comes
	untold [][]byte // pieces of chunks that became no events

	chunks int // that were sent before
	events int // of the last of them, events that were sent
	ends   int // of the answer's end, events that were sent
}

// The pieces of events, see [teller].
const (
	more = "+"
	last = "e"
)

// newTeller reads the header of a request for a state, and makes of it what the runtime is asked for.
func newTeller(h http.Header, asked []byte, to shape) *teller {
	state := h.Get(control.HeaderState)
	if state == "" || to.events == nil {
		return nil
	}
	scores := ""
	if to.scored && bytes.Contains(asked, []byte(`"logprobs":true`)) { // they are told again at the end
		scores = control.StateScores
	}
	t := &teller{lines: to.lines}
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

// takes takes a comment in front of a chunk, and passes on that the instance gives way.
func (t *teller) takes(line []byte, out *bytes.Buffer) bool {
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
	out.WriteString("\n")
	if !t.lines {
		out.WriteString("\n")
	}
	return true
}

// chunk puts the state in front of the events that a chunk has become, from the byte from on, and drops those that were sent before.
func (t *teller) chunk(out *bytes.Buffer, from int) {
	if t == nil {
		return
	}
	piece := t.piece
	t.piece = nil
	sent := 0
	if t.chunks > 0 {
		if t.chunks--; t.chunks > 0 || t.ends > 0 {
			out.Truncate(from)
			return
		}
		sent, piece = t.events, []byte(more)
	}
	if events := t.split(out, from); len(events) > sent {
		t.write(out, from, events[sent:], piece, more)
	} else if out.Truncate(from); sent == 0 && piece != nil {
		t.untold = append(t.untold, piece)
	}
}

// last is chunk for the events that end the answer.
func (t *teller) last(out *bytes.Buffer, from int) {
	if t == nil {
		return
	}
	events := t.split(out, from)
	t.write(out, from, events[min(t.ends, len(events)):], []byte(last), last)
}

// split returns a copy of the events in out from a byte on.
func (t *teller) split(out *bytes.Buffer, from int) (events [][]byte) {
	end := "\n\n"
	if t.lines {
		end = "\n"
	}
	for _, e := range bytes.SplitAfter(bytes.Clone(out.Bytes()[from:]), []byte(end)) {
		if len(e) > 0 {
			events = append(events, e)
		}
	}
	return events
}

// write writes events in the place of what is in out from a byte on, with a piece in front of the first and another in front of each further one.
func (t *teller) write(out *bytes.Buffer, from int, events [][]byte, first []byte, further string) {
	out.Truncate(from)
	for i, e := range events {
		out.WriteString(control.StateComment)
		if i == 0 {
			for _, p := range t.untold {
				out.Write(p)
				out.WriteByte(';')
			}
			t.untold = nil
			out.Write(first)
		} else {
			out.WriteString(further)
		}
		out.WriteByte('\n')
		out.Write(e)
	}
}
