package parse

import (
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// MaxDepth is how deep arrays and objects may be nested in each other.
const MaxDepth = 512

// scanner checks the syntax of one JSON document (RFC 8259). It keeps only the
// kinds of the open brackets.
type scanner struct {
	data []byte
	at   int
	open [MaxDepth]byte // '{' or '[' of each level
}

// fail describes what is wrong at the current byte.
func (s *scanner) fail(want string) *api.Error {
	if s.at >= len(s.data) {
		return api.BadRequest("", "the body ends too early, after %d bytes: want %s (is it cut off?)", len(s.data), want)
	}
	return api.BadRequest("", "the body is not valid JSON: want %s at byte %d, got %q", want, s.at, excerpt(s.data[s.at:]))
}

// excerpt is the start of b, at most a few characters.
func excerpt(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), 12)]), "")
}

// space skips white space and returns the next byte, 0 at the end. (A zero byte in the document is an error anywhere.)
func (s *scanner) space() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// document checks the whole document, an object, and hands its known fields to f.
func (s *scanner) document(f *fields) *api.Error {
	if c := s.space(); c != '{' {
		return s.fail("a JSON object, beginning with {")
	}
	s.at++
	if s.space() == '}' {
		s.at++
		return s.end()
	}
	for {
		key, err := s.key()
		if err != nil {
			return err
		}
		s.space()
		from := s.at
		if err := s.value(); err != nil {
			return err
		}
		f.set(key, s.data[from:s.at])
		switch s.space() {
		case ',':
			s.at++
			s.space()
		case '}':
			s.at++
			return s.end()
		default:
			return s.fail("a comma or }")
		}
	}
}

// end checks that nothing follows.
func (s *scanner) end() *api.Error {
	if s.space(); s.at < len(s.data) {
		return s.fail("nothing after the object")
	}
	return nil
}

// key reads a key and the colon and returns the key decoded.
func (s *scanner) key() ([]byte, *api.Error) {
	if s.at >= len(s.data) || s.data[s.at] != '"' {
		return nil, s.fail("a field's name in double quotes")
	}
	from := s.at
	escaped, err := s.str()
	if err != nil {
		return nil, err
	}
	key := s.data[from+1 : s.at-1]
	if escaped {
		key = []byte(text(s.data[from:s.at]))
	}
	if s.space() != ':' {
		return nil, s.fail("a colon")
	}
	s.at++
	return key, nil
}

// value checks one value of any kind. It does not call itself: the depth is data's to choose.
func (s *scanner) value() *api.Error {
	depth := 0
	for {
		opened, err := s.begin(&depth)
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		more, err := s.follow(&depth)
		if err != nil || !more {
			return err
		}
	}
}

// begin reads a scalar, an empty bracket pair, or an opening bracket with what
// comes before its first value; opened says that a value must follow.
func (s *scanner) begin(depth *int) (opened bool, err *api.Error) {
	switch c := s.space(); {
	case c == '"':
		_, err = s.str()
		return false, err
	case c == '-' || (c >= '0' && c <= '9'):
		return false, s.number()
	case c == 't':
		return false, s.word("true")
	case c == 'f':
		return false, s.word("false")
	case c == 'n':
		return false, s.word("null")
	case c != '{' && c != '[':
		return false, s.fail("a value")
	}
	c := s.data[s.at]
	if *depth == MaxDepth-1 { // the document's own object is the first level
		return false, api.BadRequest("", "the body nests arrays and objects more than %d deep at byte %d", MaxDepth, s.at)
	}
	s.at++
	if next := s.space(); next == c+2 { // '{'+2 == '}' and '['+2 == ']'
		s.at++
		return false, nil
	}
	s.open[*depth] = c
	*depth++
	if c == '{' {
		_, err = s.key()
	}
	return true, err
}

// follow reads what comes after a value: closing brackets, and a comma with the
// next key. more says that a value must follow; without it the outermost value is complete.
func (s *scanner) follow(depth *int) (more bool, err *api.Error) {
	for *depth > 0 {
		bracket := s.open[*depth-1]
		switch c := s.space(); c {
		case ',':
			s.at++
			if bracket == '{' {
				s.space()
				_, err = s.key()
			}
			return true, err
		case bracket + 2:
			s.at++
			*depth--
		default:
			return false, s.fail("a comma or " + string(rune(bracket+2)))
		}
	}
	return false, nil
}

// plain marks the bytes that stand for themselves in a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// str checks a string and says whether it has escapes.
func (s *scanner) str() (escaped bool, err *api.Error) {
	data := s.data
	at := s.at + 1
	for {
		for at < len(data) && plain[data[at]] {
			at++
		}
		switch {
		case at >= len(data):
			s.at = at
			return escaped, s.fail("the end of a string")
		case data[at] == '"':
			s.at = at + 1
			return escaped, nil
		case data[at] != '\\':
			s.at = at
			return escaped, s.fail("no control character in a string (write \\n for a line break)")
		}
		escaped = true
		n := escape(data[at:])
		if n == 0 {
			s.at = at
			return escaped, s.fail("a valid escape")
		}
		at += n
	}
}

// escape returns the length of the escape at the start of b, 0 if it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// word checks one of the three literals.
func (s *scanner) word(w string) *api.Error {
	if !strings.HasPrefix(string(s.data[s.at:min(len(s.data), s.at+len(w))]), w) {
		return s.fail(w)
	}
	s.at += len(w)
	return nil
}

// number checks a number.
func (s *scanner) number() *api.Error {
	if s.data[s.at] == '-' {
		s.at++
	}
	if s.at < len(s.data) && s.data[s.at] == '0' {
		s.at++
	} else if !s.digits() {
		return s.fail("a digit")
	}
	if s.at < len(s.data) && s.data[s.at] == '.' {
		s.at++
		if !s.digits() {
			return s.fail("a digit")
		}
	}
	if s.at < len(s.data) && s.data[s.at]|0x20 == 'e' {
		s.at++
		if s.at < len(s.data) && (s.data[s.at] == '+' || s.data[s.at] == '-') {
			s.at++
		}
		if !s.digits() {
			return s.fail("a digit")
		}
	}
	return nil
}

// digits skips digits and says whether there was any.
func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}
