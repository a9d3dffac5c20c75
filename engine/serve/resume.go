package serve

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine"
)

// A stream that is cut because its server ends can go on at another one, if whoever passes it on asks for it with
// stateHeader. The life of such a stream:
//
//  1. The header is stateNew. Each event then has a comment in front of it, stateComment and a piece of the stream's state, in
//     the same write. Who passes the stream on keeps the pieces of the events that have arrived whole, and passes the comments on to nobody.
//  2. The stream is cut. The same request is sent to another server, with all pieces in the header, in their order and with
//     semicolons between them.
//  3. That server takes the tokens in them for made: text, grammar, stop strings, calls and thoughts are where they were, and no
//     event is sent for what is known. Then it computes the prompt and these tokens, and goes on.
//
// A piece is the tokens of its event, numbers with commas. The first one begins with what is the stream's own: id, time, seed,
// how much of the prompt was in the cache, and the mark of the model, each with a colon behind it. Another model does not go on with it. The event with the usage has the piece usagePiece.
const (
	stateHeader  = "X-Rouse-Stream-State"
	stateNew     = "new"
	stateComment = ": rouse-state "
	usagePiece   = "u"
)

// state is that of one stream; nil: nobody asks for it.
type state struct {
	id      string
	created int64
	seed    *int64
	cached  int
	mark    string
	tokens  []int32 // made before, by another server
	usage   bool    // the usage was sent, too

	skip    int     // tokens whose events were sent before
	pending []int32 // tokens since the last event that was sent
	begun   bool    // the first piece was sent
}

// streamState reads the header of a request. Only one text can go on.
func (s *Server) streamState(r *http.Request, o *options, requests []engine.Request) (*state, error) {
	text := r.Header.Get(stateHeader)
	if text == "" || !o.Stream || len(requests) != 1 || requests[0].N != 1 || requests[0].NoTokens {
		return nil, nil
	}
	if text == stateNew {
		return &state{mark: s.mark}, nil
	}
	known, ok := parseState(text)
	switch {
	case !ok:
		return nil, badRequest("", "the header %s has no state of a stream", stateHeader)
	case known.mark != s.mark:
		return nil, errorf(http.StatusBadRequest, codeStreamCut, "the answer was cut, and another model does not go on with it: ask again")
	}
	return known, nil
}

// parseState reads the pieces of a state.
func parseState(text string) (s *state, ok bool) {
	head := strings.SplitN(text, ":", 6)
	if len(head) != 6 || head[0] == "" || len(head[0]) > 64 || strings.ContainsAny(head[0], `"\;,`) {
		return nil, false
	}
	s = &state{id: head[0], mark: head[4], begun: true}
	var err error
	if s.created, err = strconv.ParseInt(head[1], 10, 64); err != nil {
		return nil, false
	}
	if head[2] != "" {
		seed, err := strconv.ParseInt(head[2], 10, 64)
		if err != nil {
			return nil, false
		}
		s.seed = &seed
	}
	if s.cached, err = strconv.Atoi(head[3]); err != nil || s.cached < 0 {
		return nil, false
	}
	for piece := range strings.SplitSeq(head[5], ";") {
		if s.usage {
			return nil, false // nothing follows it
		}
		if piece == usagePiece {
			s.usage = true
			continue
		}
		for word := range strings.SplitSeq(piece, ",") {
			n, err := strconv.ParseInt(word, 10, 32)
			if err != nil || n < 0 {
				return nil, false
			}
			s.tokens = append(s.tokens, int32(n))
		}
	}
	s.skip = len(s.tokens)
	return s, len(s.tokens) > 0
}

// begin gives the request what the stream has, or takes from it what the stream is to have.
func (s *state) begin(e *envelope, r *engine.Request) {
	r.Sampling = r.Sampling.WithSeed()
	if len(s.tokens) == 0 {
		s.id, s.created, s.seed = e.id, e.created, r.Sampling.Seed
		return
	}
	e.id, e.created, r.Resume = s.id, s.created, slices.Clone(s.tokens)
	if s.seed != nil {
		r.Sampling.Seed = s.seed
	}
}

// add takes an event's token. replayed says that the event was sent before.
func (s *state) add(ev *engine.Event) (replayed bool) {
	if s.skip > 0 {
		s.skip--
		return true
	}
	s.pending = append(s.pending, ev.Token)
	return false
}

// line appends the comment that goes in front of the next event.
func (s *state) line(dst []byte) []byte {
	dst = append(dst, stateComment...)
	if !s.begun {
		dst = append(append(dst, s.id...), ':')
		dst = append(strconv.AppendInt(dst, s.created, 10), ':')
		if s.seed != nil {
			dst = strconv.AppendInt(dst, *s.seed, 10)
		}
		dst = append(strconv.AppendInt(append(dst, ':'), int64(s.cached), 10), ':')
		dst = append(append(dst, s.mark...), ':')
	}
	for i, t := range s.pending {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(t), 10)
	}
	return append(dst, '\n')
}

// sent says that the event behind the line was sent.
func (s *state) sent() { s.begun, s.pending = true, s.pending[:0] }
