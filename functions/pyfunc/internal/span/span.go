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

// Begin returns where the value of a document begins, or the document's length.
func Begin(data []byte) int { return space(data, 0) }

// End says whether nothing but space comes from data[at] on.
func End(data []byte, at int) error {
	if end := space(data, at); end != len(data) {
		return &Error{end, "there is more after the value"}
	}
	return nil
}

// Is says whether the value at data[at] begins with c; at may be the end.
func Is(data []byte, at int, c byte) bool { return at < len(data) && data[at] == c }

// Skip returns where the value that begins at data[at] ends.
func Skip(data []byte, at int) (end int, err error) { return value(data, at, 0) }

// Object reads the object that begins at data[at]. It calls member for each
// member, in order, with where its value begins; member returns where it ends.
// A key is decoded, and good until the document is read further. Object returns
// where the object ends, and the first error, of the syntax (an [*Error]) or of member.
func Object(data []byte, at int, member func(key []byte, at int) (end int, err error)) (end int, err error) {
	if !Is(data, at, '{') {
		return 0, unexpected(data, at, "an object")
	}
	at = space(data, at+1)
	if Is(data, at, '}') {
		return at + 1, nil
	}
	for {
		if !Is(data, at, '"') {
			return 0, unexpected(data, at, "a key in quotes")
		}
		keyEnd, err := text(data, at)
		if err != nil {
			return 0, err
		}
		colon := space(data, keyEnd)
		if !Is(data, colon, ':') {
			return 0, unexpected(data, colon, "a colon")
		}
		if at, err = member(key(data[at+1:keyEnd-1]), space(data, colon+1)); err != nil {
			return 0, err
		}
		at = space(data, at)
		switch {
		case Is(data, at, ','):
			at = space(data, at+1)
		case Is(data, at, '}'):
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

// Array reads the array that begins at data[at] as [Object] does an object.
func Array(data []byte, at int, item func(at int) (end int, err error)) (end int, err error) {
	if !Is(data, at, '[') {
		return 0, unexpected(data, at, "an array")
	}
	at = space(data, at+1)
	if Is(data, at, ']') {
		return at + 1, nil
	}
	for {
		if at, err = item(at); err != nil {
			return 0, err
		}
		at = space(data, at)
		switch {
		case Is(data, at, ','):
			at = space(data, at+1)
		case Is(data, at, ']'):
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
		return Object(data, at, func(_ []byte, at int) (int, error) { return value(data, at, depth+1) })
	case c == '[':
		return Array(data, at, func(at int) (int, error) { return value(data, at, depth+1) })
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
