package engine

import "strings"

// stopper cuts a text that arrives in pieces before the first stop string. Text
// that may be the beginning of one is held back until it is decided.
type stopper struct {
	stops  []string
	keep   bool // the stop string stays in the text
	held   string
	found  string // the stop string that ended the text
	longer int    // the longest stop string, less one: as much may have to be held back
}

func newStopper(stops []string, keep bool) stopper {
	s := stopper{stops: stops, keep: keep}
	for _, stop := range stops {
		s.longer = max(s.longer, len(stop)-1)
	}
	return s
}

// write takes the next piece and returns the text that is safe to send. When
// found is true the text is over.
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
		// Of several the one that is complete first counts, as if the text came byte by byte; of those the longest.
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

// undecided is the length of the longest end of text that begins a stop string.
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

// flush returns what is held back: the text is over and no stop string came.
func (s *stopper) flush() string {
	held := s.held
	s.held = ""
	return held
}
