package field

import (
	"fmt"
	"strings"
)

// maxDepth is how deep arrays and objects may be nested, as in encoding/json.
const maxDepth = 10000

// place is where a field lies: offsets in the body.
type place struct {
	begin, end      int // from the brace or comma before it to the one behind it
	name, nameEnd   int // with the quotes
	value, valueEnd int
}

// scanner goes through the fields of an object.
type scanner struct {
	data   []byte
	at     int
	field  place  // the last field; before the first one only valueEnd counts
	opened int    // offset behind the opening brace; 0 before it was read
	closed int    // offset of the closing brace; 0 before it was read
	depth  int    // how deep arrays and objects may be nested; 0: maxDepth
	want   string // what was not found at at; empty: no failure so far
}

// syntaxError is made into text only when somebody asks.
type syntaxError struct {
	data  []byte
	at    int
	depth int
	want  string
}

// flat is what is wanted where there are too many brackets.
const flat = "fewer brackets"

// Error says what is wrong and at which byte.
func (e *syntaxError) Error() string {
	if e.want == flat {
		return fmt.Sprintf("the body nests arrays and objects more than %d deep at byte %d", e.depth, e.at)
	}
	if e.at >= len(e.data) {
		return fmt.Sprintf("the body ends too early, after %d bytes: want %s (is it cut off?)", len(e.data), e.want)
	}
	excerpt := strings.ToValidUTF8(string(e.data[e.at:min(len(e.data), e.at+12)]), "")
	return fmt.Sprintf("the body is not valid JSON: want %s at byte %d, got %q", e.want, e.at, excerpt)
}

func (s *scanner) failed() bool { return s.want != "" }

func (s *scanner) error() error {
	if !s.failed() {
		return nil
	}
	return &syntaxError{s.data, s.at, s.limit(), s.want}
}

func (s *scanner) limit() int {
	if s.depth > 0 {
		return min(s.depth, maxDepth)
	}
	return maxDepth
}

// fail notes what is wrong and returns false.
func (s *scanner) fail(want string) bool {
	s.want = want
	return false
}

// next reads one field. At the end of the object it checks that nothing follows
// and returns false, as after an error.
func (s *scanner) next() bool {
	switch {
	case s.failed() || s.closed > 0:
		return false
	case s.opened == 0:
		if s.space() != '{' {
			return s.fail("a JSON object, beginning with {")
		}
		s.at++
		s.opened = s.at
		s.field.valueEnd = s.at
		if s.space() == '}' {
			return s.close()
		}
		s.field.begin = s.opened
	case s.space() == '}':
		return s.close()
	default:
		s.at++ // the comma, which was seen
		s.field.begin = s.at
		s.space()
	}
	s.field.name = s.at
	if !s.key() {
		return false
	}
	s.space()
	s.field.value = s.at
	if !s.anything() {
		return false
	}
	s.field.valueEnd = s.at
	if c := s.space(); c != ',' && c != '}' {
		return s.fail("a comma or }")
	}
	s.field.end = s.at
	return true
}

// close reads the closing brace and returns false.
func (s *scanner) close() bool {
	s.closed = s.at
	s.at++
	if s.space(); s.at < len(s.data) {
		return s.fail("nothing after the object")
	}
	return false
}

// key reads a name and the colon.
func (s *scanner) key() bool {
	if s.at >= len(s.data) || s.data[s.at] != '"' {
		return s.fail("a field's name in double quotes")
	}
	if !s.str() {
		return false
	}
	s.field.nameEnd = s.at
	if s.space() != ':' {
		return s.fail("a colon")
	}
	s.at++
	return true
}

// segment is all between the field's brace or comma and the next.
func (s *scanner) segment() []byte { return s.data[s.field.begin:s.field.end] }

// is says whether the field has the name.
func (s *scanner) is(name string, fold bool) bool {
	return means(s.data[s.field.name:s.field.nameEnd], name, fold)
}

// space skips white space and returns the next byte, 0 at the end.
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

// anything reads one value of any kind.
func (s *scanner) anything() bool {
	if c := s.space(); c != '{' && c != '[' {
		return s.scalar(c)
	}
	name := s.field
	ok := s.nested()
	s.field = name // keys of inner objects were noted as if they were ours
	return ok
}

// nested reads an array or object. It does not call itself: the depth is the
// client's to choose. A set bit is an object.
func (s *scanner) nested() bool {
	var objects [maxDepth/64 + 1]uint64
	depth, limit := 0, s.limit()
	for {
		// 1. A value begins: a bracket, or a scalar.
		switch c := s.space(); c {
		case '{', '[':
			if depth++; depth >= limit { // the body's own object is the first level
				return s.fail(flat)
			}
			s.at++
			bit := uint64(1) << (depth & 63)
			objects[depth>>6] &^= bit
			if c == '{' {
				objects[depth>>6] |= bit
			}
			if s.space() == c+2 { // '{'+2 == '}' and '['+2 == ']'
				break // it is empty: 2. reads the bracket
			}
			if c == '{' && !s.key() {
				return false
			}
			continue
		default:
			if !s.scalar(c) {
				return false
			}
		}
		// 2. Values end: closing brackets, then a comma.
		for s.bracket(objects[depth>>6]>>(depth&63)&1 == 1) {
			if depth--; depth == 0 {
				return true
			}
		}
		if s.failed() || !s.comma(objects[depth>>6]>>(depth&63)&1 == 1) {
			return false
		}
	}
}

// bracket reads the closing bracket of an object or array if it is next.
func (s *scanner) bracket(object bool) bool {
	want := byte(']')
	if object {
		want = '}'
	}
	if s.space() != want {
		return false
	}
	s.at++
	return true
}

// comma reads the comma between two values, and in an object the next key.
func (s *scanner) comma(object bool) bool {
	switch {
	case s.space() == ',' && object:
		s.at++
		s.space()
		return s.key()
	case s.space() == ',':
		s.at++
		return true
	case object:
		return s.fail("a comma or }")
	}
	return s.fail("a comma or ]")
}

// scalar reads a value without brackets that begins with c.
func (s *scanner) scalar(c byte) bool {
	switch {
	case c == '"':
		return s.str()
	case c == '-' || (c >= '0' && c <= '9'):
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.fail("a value")
}

// plain marks the bytes that stand for themselves in a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// str reads a string.
func (s *scanner) str() bool {
	data, at := s.data, s.at+1
	for {
		for at < len(data) && plain[data[at]] {
			at++
		}
		s.at = at
		switch {
		case at >= len(data):
			return s.fail("the end of a string")
		case data[at] == '"':
			s.at++
			return true
		case data[at] != '\\':
			return s.fail(`no control character in a string (write \n for a line break)`)
		}
		n := escape(data[at:])
		if n == 0 {
			return s.fail("a valid escape")
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
		if _, ok := unit(b); ok {
			return 6
		}
	}
	return 0
}

// word reads one of the three literals.
func (s *scanner) word(w string) bool {
	if end := s.at + len(w); end > len(s.data) || string(s.data[s.at:end]) != w {
		return s.fail(w)
	}
	s.at += len(w)
	return true
}

// number reads a number.
func (s *scanner) number() bool {
	if s.data[s.at] == '-' {
		s.at++
	}
	if s.at < len(s.data) && s.data[s.at] == '0' {
		s.at++
	} else if !s.digits() {
		return false
	}
	if s.at < len(s.data) && s.data[s.at] == '.' {
		s.at++
		if !s.digits() {
			return false
		}
	}
	if s.at < len(s.data) && s.data[s.at]|0x20 == 'e' {
		s.at++
		if s.at < len(s.data) && (s.data[s.at] == '+' || s.data[s.at] == '-') {
			s.at++
		}
		return s.digits()
	}
	return true
}

// digits reads at least one digit.
func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	if s.at == from {
		return s.fail("a digit")
	}
	return true
}
