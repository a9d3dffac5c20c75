package span

import "fmt"

// MaxDepth is how deep values may be nested.
const MaxDepth = 512

// Error is a place where the bytes are not JSON.
type Error struct {
	At  int // offset of the byte
	Why string
}

// Error says what is wrong, and where.
func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d", e.Why, e.At) }

// Document returns the span of the one value that data holds.
func Document(data []byte) (from, to int, err error) {
	from = space(data, 0)
	if to, err = value(data, from, 0); err != nil {
		return 0, 0, err
	}
	if end := space(data, to); end != len(data) {
		return 0, 0, &Error{end, "there is more after the value"}
	}
	return from, to, nil
}

// Object calls member for each member of the object that begins at data[at], in
// order, with the span of its value. A key is decoded, and good until member
// returns. It returns the offset after the object, and the first error, of the
// syntax (an [*Error]) or of member.
func Object(data []byte, at int, member func(key []byte, from, to int) error) (end int, err error) {
	return object(data, at, 0, member)
}

// Array calls item for each item of the array that begins at data[at], as [Object] does.
func Array(data []byte, at int, item func(from, to int) error) (end int, err error) {
	return array(data, at, 0, item)
}

func object(data []byte, at, depth int, member func(key []byte, from, to int) error) (int, error) {
	at = space(data, at+1)
	if at < len(data) && data[at] == '}' {
		return at + 1, nil
	}
	for {
		if at >= len(data) || data[at] != '"' {
			return 0, unexpected(data, at, "a key in quotes")
		}
		keyEnd, err := text(data, at)
		if err != nil {
			return 0, err
		}
		colon := space(data, keyEnd)
		if colon >= len(data) || data[colon] != ':' {
			return 0, unexpected(data, colon, "a colon")
		}
		from := space(data, colon+1)
		to, err := value(data, from, depth+1)
		if err != nil {
			return 0, err
		}
		if member != nil {
			if err := member(key(data[at+1:keyEnd-1]), from, to); err != nil {
				return 0, err
			}
		}
		at = space(data, to)
		switch {
		case at < len(data) && data[at] == ',':
			at = space(data, at+1)
		case at < len(data) && data[at] == '}':
			return at + 1, nil
		default:
			return 0, unexpected(data, at, "a comma or the object's end")
		}
	}
}

// key decodes a key without touching the document.
func key(raw []byte) []byte {
	for _, c := range raw {
		if c == '\\' {
			return decode(append([]byte(nil), raw...))
		}
	}
	return raw
}

func array(data []byte, at, depth int, item func(from, to int) error) (int, error) {
	at = space(data, at+1)
	if at < len(data) && data[at] == ']' {
		return at + 1, nil
	}
	for {
		to, err := value(data, at, depth+1)
		if err != nil {
			return 0, err
		}
		if item != nil {
			if err := item(at, to); err != nil {
				return 0, err
			}
		}
		at = space(data, to)
		switch {
		case at < len(data) && data[at] == ',':
			at = space(data, at+1)
		case at < len(data) && data[at] == ']':
			return at + 1, nil
		default:
			return 0, unexpected(data, at, "a comma or the array's end")
		}
	}
}

// value returns the offset after the value that begins at data[at].
func value(data []byte, at, depth int) (int, error) {
	if depth > MaxDepth {
		return 0, &Error{at, fmt.Sprintf("values are nested more than %d deep", MaxDepth)}
	}
	if at >= len(data) {
		return 0, unexpected(data, at, "a value")
	}
	switch c := data[at]; {
	case c == '"':
		return text(data, at)
	case c == '{':
		return object(data, at, depth, nil)
	case c == '[':
		return array(data, at, depth, nil)
	case c == 't':
		return word(data, at, "true")
	case c == 'f':
		return word(data, at, "false")
	case c == 'n':
		return word(data, at, "null")
	case c == '-' || '0' <= c && c <= '9':
		return number(data, at)
	}
	return 0, unexpected(data, at, "a value")
}

func word(data []byte, at int, want string) (int, error) {
	if len(data)-at < len(want) || string(data[at:at+len(want)]) != want {
		return 0, unexpected(data, at, want)
	}
	return at + len(want), nil
}

func number(data []byte, at int) (int, error) {
	if data[at] == '-' {
		at++
	}
	switch {
	case at < len(data) && data[at] == '0':
		at++
	case digits(data, at) > at:
		at = digits(data, at)
	default:
		return 0, unexpected(data, at, "a digit")
	}
	if at < len(data) && data[at] == '.' {
		end := digits(data, at+1)
		if end == at+1 {
			return 0, unexpected(data, end, "a digit")
		}
		at = end
	}
	if at < len(data) && (data[at] == 'e' || data[at] == 'E') {
		at++
		if at < len(data) && (data[at] == '+' || data[at] == '-') {
			at++
		}
		end := digits(data, at)
		if end == at {
			return 0, unexpected(data, end, "a digit")
		}
		at = end
	}
	return at, nil
}

func digits(data []byte, at int) int {
	for at < len(data) && '0' <= data[at] && data[at] <= '9' {
		at++
	}
	return at
}

func space(data []byte, at int) int {
	for at < len(data) {
		switch data[at] {
		case ' ', '\t', '\r', '\n':
			at++
		default:
			return at
		}
	}
	return at
}

func unexpected(data []byte, at int, want string) *Error {
	if at >= len(data) {
		return &Error{len(data), "it ends where " + want + " must stand"}
	}
	return &Error{at, fmt.Sprintf("%q stands where %s must stand", data[at], want)}
}
