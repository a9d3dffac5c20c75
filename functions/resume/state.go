package resume

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A state is a list of pieces, separated by semicolons, one for each event that was sent:
//
//   - The first one begins with the stream's own fields, each followed by a colon: word, ID, time, model, mark, the number of the
//     prompt's tokens and their digest.
//   - Then come the event's tokens, separated by commas, or a minus if it has none.
//   - "N<" before them: the last N tokens before were generated again.
//   - "f" before that: the answer has ended with the event.
//   - "u" is the event of the usage, "x" one after which the stream can't be continued.
const word = "ids"

type stream struct {
	id      string
	created int64
	model   string
	mark    string
	prompt  int // its number of tokens
	digest  string

	tokens   []int64 // of the answer
	finished bool
	counted  bool // the usage was sent
	lost     bool // it can't be continued
}

func digest(tokens []int64) string {
	h := sha256.New()
	for _, t := range tokens {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(t)))
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

func (s *stream) head() string {
	return strings.Join([]string{word, url.QueryEscape(s.id), strconv.FormatInt(s.created, 10), url.QueryEscape(s.model), s.mark, strconv.Itoa(s.prompt), s.digest, ""}, ":")
}

// piece returns the piece of an event with these tokens, before which dropped tokens were discarded.
func piece(tokens []int64, dropped int, finished bool) string {
	var b []byte
	if finished {
		b = append(b, 'f')
	}
	if dropped > 0 {
		b = append(strconv.AppendInt(b, int64(dropped), 10), '<')
	}
	for i, t := range tokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, t, 10)
	}
	if len(tokens) == 0 {
		b = append(b, '-')
	}
	return string(b)
}

const (
	maxName   = 256     // of an id or a model
	maxPrompt = 1 << 30 // tokens: small enough for sums
	maxToken  = 1 << 31 // above any id
)

func parse(text string) (s *stream, ok bool) {
	parts := strings.SplitN(text, ":", 8)
	if len(parts) != 8 || parts[0] != word {
		return nil, false
	}
	s = &stream{mark: parts[4], digest: parts[6]}
	var errs [4]error
	s.id, errs[0] = url.QueryUnescape(parts[1])
	s.created, errs[1] = strconv.ParseInt(parts[2], 10, 64)
	s.model, errs[2] = url.QueryUnescape(parts[3])
	s.prompt, errs[3] = strconv.Atoi(parts[5])
	if slices.ContainsFunc(errs[:], func(err error) bool { return err != nil }) || s.prompt <= 0 || s.prompt > maxPrompt || len(s.id) > maxName || len(s.model) > maxName {
		return nil, false
	}
	for p := range strings.SplitSeq(parts[7], ";") {
		if !s.add(p) {
			return nil, false
		}
	}
	return s, true
}

func (s *stream) add(p string) bool {
	switch p {
	case "u":
		ok := s.finished && !s.counted
		s.counted = true
		return ok
	case "x":
		s.lost = true
		return true
	}
	p, finished := strings.CutPrefix(p, "f")
	if s.finished {
		return false // only the usage follows
	}
	s.finished = finished
	if n, rest, found := strings.Cut(p, "<"); found {
		dropped, err := strconv.Atoi(n)
		if err != nil || dropped <= 0 || dropped > len(s.tokens) {
			return false
		}
		s.tokens, p = s.tokens[:len(s.tokens)-dropped], rest
	}
	if p == "-" {
		return true
	}
	for n := range strings.SplitSeq(p, ",") {
		t, err := strconv.ParseInt(n, 10, 64)
		if err != nil || t < 0 || t >= maxToken {
			return false
		}
		s.tokens = append(s.tokens, t)
	}
	return true
}
