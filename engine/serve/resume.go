package serve

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/sample"
)

// A stream that its server cuts can continue on another one, if the proxy sends stateHeader:
//
//  1. The header is stateNew. Each event has a comment before it, in the same write: stateComment and a piece of
//     state. The proxy keeps the pieces of whole events and drops the comments.
//  2. The stream is cut. The proxy sends the request to another server, with all pieces in the header, in order,
//     separated by semicolons.
//  3. That server treats their tokens as generated, sends no events for them, and continues.

// A piece has its event's tokens, separated by commas. The first one begins with the stream's id, time, seed, number of
// cached prompt tokens, and mark of model and prompt, each with a colon. A server whose mark differs rejects the state.
// The event with the usage has usagePiece.
//
// With replayPrefix before the pieces, known events are sent again. With scoresPrefix before everything, each token is
// followed by its log probabilities (see appendScores).
//
// Of several texts, each piece begins with the text's index and an equals sign; in the first piece of each prompt's
// first text, that prompt's cached tokens and a slash follow.
const (
	stateHeader  = "X-Rouse-Stream-State"
	stateNew     = "new"
	stateComment = ": rouse-state "
	usagePiece   = "u"
	replayPrefix = "replay:"
	scoresPrefix = "scores:"
)

// state is nil if not requested.
type state struct {
	id      string
	created int64
	seed    *int64
	mark    string
	texts   []known
	scored  bool // pieces have log probabilities
	resumed bool // continues a stream of another server
	usage   bool // it was sent
	begun   bool // the first piece was sent
}

type known struct {
	made    []sample.Choice // by another server
	cached  int             // of its prompt, in a prompt's first text
	seen    int             // events
	skip    int             // events sent before
	pending []sample.Choice // since the last event sent
	begun   bool            // its first piece was sent

	replayed bool
}

func (s *Server) streamState(r *http.Request, o *options, requests []engine.Request) (*state, error) {
	text := r.Header.Get(stateHeader)
	if text == "" || !o.Stream || slices.ContainsFunc(requests, func(q engine.Request) bool { return q.NoTokens }) {
		return nil, nil
	}
	texts := 0
	for i := range requests {
		texts += requests[i].N
	}
	text, scored := strings.CutPrefix(text, scoresPrefix)
	mark, ok := s.markFor(requests)
	switch {
	case !ok && text != stateNew:
		return nil, anotherModel() // else the client gets the answer twice
	case !ok:
		return nil, nil
	case text == stateNew:
		return &state{mark: mark, scored: scored, texts: make([]known, texts)}, nil
	}
	text, replay := strings.CutPrefix(text, replayPrefix)
	known, ok := parseState(text, texts, scored)
	if !ok || !known.of(requests) {
		return nil, badRequest("", "the header %s has no state of a stream", stateHeader)
	}
	if model, _, _ := strings.Cut(mark, markPrompt); known.mark != mark {
		if before, _, _ := strings.Cut(known.mark, markPrompt); before == model {
			return nil, errorf(http.StatusBadRequest, codeStreamCut, "the answer was cut, and its prompt reads otherwise now, as with a chat template that has the date in it: ask again")
		}
		return nil, anotherModel()
	}
	if replay {
		known.replay()
	}
	return known, nil
}

func (s *state) of(requests []engine.Request) bool {
	text := 0
	for i := range requests {
		r := &requests[i]
		if s.seed == nil && r.Sampling.Seed == nil && r.Sampling.WithSeed().Seed != nil {
			return false
		}
		for _, k := range s.texts[text : text+r.N] {
			if k.cached > len(r.Prompt) {
				return false
			}
		}
		text += r.N
	}
	return true
}

func anotherModel() *Error {
	return errorf(http.StatusBadRequest, codeStreamCut, "the answer was cut, and this server has another model: ask again")
}

// markFor marks the model and the adapter, and pins the requests to the adapter's digest. ok is false if that is
// unknown.
func (s *Server) markFor(requests []engine.Request) (mark string, ok bool) {
	if len(requests[0].Images) > 0 { // the projector may differ
		return "", false
	}
	name, prompt := requests[0].Adapter, markPrompt+promptMark(requests)
	if name == "" {
		return s.mark + prompt, true
	}
	for _, a := range s.engine.Adapters() {
		if a.Name != name || a.Digest == "" {
			continue
		}
		for i := range requests {
			requests[i].AdapterDigest = a.Digest
		}
		return s.mark + "-" + a.Digest[:16] + prompt, true
	}
	return "", false
}

// markPrompt is between the model's mark and the prompts'.
const markPrompt = "."

func promptMark(requests []engine.Request) string {
	h := sha256.New()
	var part []byte
	for i := range requests {
		part = binary.LittleEndian.AppendUint32(part[:0], uint32(len(requests[i].Prompt)))
		for _, t := range requests[i].Prompt {
			part = binary.LittleEndian.AppendUint32(part, uint32(t))
		}
		_, _ = h.Write(part)
	}
	return strconv.FormatUint(binary.LittleEndian.Uint64(h.Sum(nil)), 36)
}

func (s *state) replay() {
	s.begun, s.usage = false, false
	for i := range s.texts {
		s.texts[i].skip = 0
		s.texts[i].replayed = s.texts[i].begun
		s.texts[i].begun = false
	}
}

func parseState(text string, texts int, scored bool) (s *state, ok bool) {
	head := strings.SplitN(text, ":", 6)
	if len(head) != 6 || head[0] == "" || len(head[0]) > 64 || strings.ContainsFunc(head[0], strange) {
		return nil, false
	}
	s = &state{id: head[0], mark: head[4], begun: true, resumed: true, scored: scored, texts: make([]known, texts)}
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
	cached, err := strconv.Atoi(head[3])
	if err != nil || cached < 0 {
		return nil, false
	}
	s.texts[0].cached = cached
	for piece := range strings.SplitSeq(head[5], ";") {
		if s.usage || !s.piece(piece) {
			return nil, false // nothing may follow the usage
		}
	}
	return s, !s.usage || !slices.ContainsFunc(s.texts, func(k known) bool { return !k.begun })
}

// strange reports whether no id of ours has r.
func strange(r rune) bool {
	return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

func (s *state) piece(piece string) bool {
	if piece == usagePiece {
		s.usage = true
		return s.texts[0].begun
	}
	k := &s.texts[0]
	if len(s.texts) > 1 {
		number, rest, found := strings.Cut(piece, "=")
		i, err := strconv.Atoi(number)
		if !found || err != nil || i < 0 || i >= len(s.texts) {
			return false
		}
		k, piece = &s.texts[i], rest
		if number, rest, found := strings.Cut(piece, "/"); found {
			if k.cached, err = strconv.Atoi(number); err != nil || k.cached < 0 || k.begun {
				return false
			}
			piece = rest
		}
	}
	for word := range strings.SplitSeq(piece, ",") {
		c, ok := parseChoice(word, s.scored)
		if !ok {
			return false
		}
		k.made = append(k.made, c)
	}
	k.skip, k.begun = len(k.made), true
	return true
}

// begin copies the state into the requests, or makes it from them. A drawn seed differs per prompt.
func (s *state) begin(e *envelope, requests []engine.Request) {
	if s.resumed {
		e.id, e.created = s.id, s.created
	} else {
		s.id, s.created = e.id, e.created
		if s.seed = requests[0].Sampling.WithSeed().Seed; s.seed != nil && requests[0].Sampling.Seed == nil && len(requests) > 1 {
			seed := rand.Int64() >> 1 // room to add the prompt's index
			s.seed = &seed
		}
	}
	if chat, is := e.answer.(*chatAnswer); is {
		chat.nameCalls(s.id)
	}
	texts := s.texts
	for i := range requests {
		r := &requests[i]
		if r.Sampling.Seed == nil && s.seed != nil {
			r.Sampling.Seed = seedOf(*s.seed, i)
		}
		if s.resumed {
			for _, k := range texts[:r.N] {
				r.Resume = append(r.Resume, k.tokens())
			}
		}
		texts = texts[r.N:]
	}
}

func seedOf(first int64, i int) *int64 {
	seed := first + int64(i)
	return &seed
}

// cached returns the prompt's cached tokens when its first text began; now is the first event's.
func (s *state) cached(text, now int) int {
	k := &s.texts[text]
	if !s.resumed || !k.begun && !k.replayed {
		k.cached = now
	}
	return k.cached
}

func (k *known) tokens() []int32 {
	tokens := make([]int32, len(k.made))
	for i := range k.made {
		tokens[i] = k.made[i].Token
	}
	return tokens
}

// add restores the log probabilities that an event was first sent with. replayed: the event was sent before.
func (s *state) add(ev *engine.Event) (replayed bool) {
	k := &s.texts[ev.Index]
	if s.scored && k.seen < len(k.made) {
		ev.Choice = k.made[k.seen]
	}
	if k.seen++; k.seen <= k.skip {
		return true
	}
	k.pending = append(k.pending, ev.Choice)
	return false
}

// first: the text is its prompt's first.
func (s *state) line(dst []byte, text int, first bool) []byte {
	k := &s.texts[text]
	dst = append(dst, stateComment...)
	if !s.begun {
		cached := 0
		if len(s.texts) == 1 {
			cached = k.cached
		}
		dst = append(append(dst, s.id...), ':')
		dst = append(strconv.AppendInt(dst, s.created, 10), ':')
		if s.seed != nil {
			dst = strconv.AppendInt(dst, *s.seed, 10)
		}
		dst = append(strconv.AppendInt(append(dst, ':'), int64(cached), 10), ':')
		dst = append(append(dst, s.mark...), ':')
	}
	if len(s.texts) > 1 {
		dst = append(strconv.AppendInt(dst, int64(text), 10), '=')
		if first && !k.begun {
			dst = append(strconv.AppendInt(dst, int64(k.cached), 10), '/')
		}
	}
	for i := range k.pending {
		if i > 0 {
			dst = append(dst, ',')
		}
		c := &k.pending[i]
		if dst = strconv.AppendInt(dst, int64(c.Token), 10); s.scored {
			dst = appendScores(dst, c)
		}
	}
	return append(dst, '\n')
}

func (s *state) sent(text int) {
	k := &s.texts[text]
	s.begun, k.begun, k.pending = true, true, k.pending[:0]
}
