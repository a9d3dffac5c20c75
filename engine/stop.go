package engine

import "strings"

// stopper cuts a text before the first stop string, and holds back what may begin one.
type stopper struct {
	stops  []string
	keep   bool // the text includes the stop string
	held   string
	found  string // what ended the text
	longer int    // the longest stop string's length less one
}

func newStopper(stops []string, keep bool) stopper {
	s := stopper{stops: stops, keep: keep}
	for _, stop := range stops {
		s.longer = max(s.longer, len(stop)-1)
	}
	return s
}

// write returns what is certain.
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
		// The one that is complete first wins, as if the text came byte by byte; at the same end, the longest.
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

// undecided returns the length of the longest suffix that begins a stop string.
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

func (s *stopper) flush() string {
	held := s.held
	s.held = ""
	return held
}
