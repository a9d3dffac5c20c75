package engine

import "strings"

// stopper cuts a text that arrives in pieces before the first stop string. It holds back text that may begin one.
type stopper struct {
	stops  []string
	keep   bool // the stop string stays in the text
	held   string
	found  string // the stop string that ended the text
	longer int    // length of the longest stop string, less one: the most that is held back
}

func newStopper(stops []string, keep bool) stopper {
	s := stopper{stops: stops, keep: keep}
	for _, stop := range stops {
		s.longer = max(s.longer, len(stop)-1)
	}
	return s
}

// write appends a piece and returns the text that is safe to send. If found, the text has ended.
func (s *stopper) write(piece string) (text string, found bool) {
	if len(s.stops) == 0 {
		return piece, false
	}
	if piece == "" {
		return "", false
	}
	text = s.held + piece
	at, end := -1, -1
	for _, stop := range s.stops {
		// The stop string that is complete first wins, as if the text came byte by byte; at the same end, the longest.
		if i := strings.Index(text, stop); i >= 0 && (end < 0 || i+len(stop) < end || i+len(stop) == end && i < at) {
			at, end = i, i+len(stop)
		}
	}
	if at >= 0 {
		s.held, s.found = "", text[at:end]
		if s.keep {
			at = end
		}
		return text[:at], true
	}
	cut := len(text) - s.undecided(text)
	s.held = text[cut:]
	return text[:cut], false
}

// undecided returns the length of the longest suffix of text that begins a stop string.
func (s *stopper) undecided(text string) int {
	for n := min(s.longer, len(text)); n > 0; n-- {
		tail := text[len(text)-n:]
		for _, stop := range s.stops {
			if strings.HasPrefix(stop, tail) {
				return n
			}
		}
	}
	return 0
}

// flush returns the held-back text, when the text ended without a stop string.
func (s *stopper) flush() string {
	held := s.held
	s.held = ""
	return held
}
