package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth limits the nesting of JSON that comes in.
const maxJSONDepth = 64

// maxDigits limits whole numbers: Python itself refuses to print longer ones.
const maxDigits = 3500

// FromJSON reads one JSON value as json.loads does, and keeps the order of its objects. Each string and key passes text,
// which may be nil.
func FromJSON(source string, text func(string) string) (any, error) {
	if text == nil {
		text = func(s string) string { return s }
	}
	d := json.NewDecoder(strings.NewReader(source))
	d.UseNumber()
	v, err := readValue(d, text, 0)
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not valid JSON: text after the value")
	}
	return v, nil
}

func readValue(d *json.Decoder, text func(string) string, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxJSONDepth)
	}
	token, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch v := token.(type) {
	case string:
		return text(v), nil
	case json.Number:
		return readNumber(string(v))
	case json.Delim:
		if v == '[' {
			return readList(d, text, depth)
		}
		return readDict(d, text, depth)
	}
	return token, nil // bool, nil
}

// readNumber is a whole number where the text is one, else a float.
func readNumber(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, err
		}
		return f, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	if len(s) > maxDigits {
		return nil, fmt.Errorf("a number of %d digits", len(s))
	}
	return bigInt(s), nil
}

func readList(d *json.Decoder, text func(string) string, depth int) (any, error) {
	l := &List{items: []any{}}
	for d.More() {
		e, err := readValue(d, text, depth+1)
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, e)
	}
	_, err := d.Token()
	return l, err
}

func readDict(d *json.Decoder, text func(string) string, depth int) (any, error) {
	out := &Dict{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		e, err := readValue(d, text, depth+1)
		if err != nil {
			return nil, err
		}
		out.Set(text(key.(string)), e) // the decoder lets nothing but strings through in front of a value
	}
	_, err := d.Token()
	return out, err
}

// dumper writes JSON as Python's json.dumps does.
type dumper struct {
	r           *run
	b           strings.Builder
	item, colon string // separators
	indent      string
	lines       bool // one element a line
	ascii       bool
	sorted      bool
}

// toJSON is transformers' tojson.
func toJSON(r *run, v any, a []any) any {
	d := &dumper{r: r, item: ", ", colon: ": ", ascii: truth(a[0]), sorted: truth(a[3])}
	switch indent := a[1].(type) {
	case nil:
	case string:
		d.indent, d.lines, d.item = indent, true, ","
	default:
		n := max(r.number("tojson's indent", indent), 0)
		r.grow(n)
		d.indent, d.lines, d.item = strings.Repeat(" ", n), true, ","
	}
	if a[2] != nil {
		pair := r.unpack(a[2], 2)
		d.item, d.colon = r.text("tojson's separators", pair[0]), r.text("tojson's separators", pair[1])
	}
	d.value(v, "")
	return d.b.String()
}

func (d *dumper) write(s string) { d.r.add(&d.b, s) }

func (d *dumper) value(v any, line string) {
	switch v := plain(v).(type) {
	case nil:
		d.write("null")
	case bool:
		d.write(strconv.FormatBool(v))
	case int64, bigInt:
		d.write(d.r.str(v))
	case float64:
		d.write(jsonFloat(v))
	case string:
		d.quote(v)
	case *List:
		d.all("[", "]", len(v.items), line, func(i int, line string) { d.value(v.items[i], line) })
	case *tuple:
		d.all("[", "]", len(v.items), line, func(i int, line string) { d.value(v.items[i], line) })
	case *Dict:
		entries := v.entries
		if d.sorted {
			entries = sorted(d.r, entries, func(e entry[any]) any { return e.key }, false)
		}
		d.all("{", "}", len(entries), line, func(i int, line string) {
			d.key(entries[i].key)
			d.write(d.colon)
			d.value(entries[i].value, line)
		})
	default:
		d.r.fail("tojson: object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

// all writes n elements between brackets.
func (d *dumper) all(open, end string, n int, line string, element func(i int, line string)) {
	d.write(open)
	if n == 0 {
		d.write(end)
		return
	}
	d.r.walk()
	for i := range n {
		if i > 0 {
			d.write(d.item)
		}
		if d.lines {
			d.write("\n" + line + d.indent)
		}
		element(i, line+d.indent)
	}
	if d.lines {
		d.write("\n" + line)
	}
	d.write(end)
	d.r.walking--
}

// key writes a key, as text.
func (d *dumper) key(key any) {
	if s, ok := plain(key).(string); ok {
		d.quote(s)
		return
	}
	d.write(`"`)
	d.value(key, "")
	d.write(`"`)
}

func (d *dumper) quote(s string) {
	d.write(`"`)
	from := 0
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' && (!d.ascii || c < 0x7f) {
			continue
		}
		d.write(s[from:i])
		d.write(escaped(c))
		_, n := utf8.DecodeRuneInString(s[i:])
		from = i + n
	}
	d.write(s[from:])
	d.write(`"`)
}

// escaped is c as JSON writes what it does not leave as it is.
func escaped(c rune) string {
	switch c {
	case '"', '\\':
		return `\` + string(c)
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	case '\f':
		return `\f`
	case '\b':
		return `\b`
	}
	if c >= 0x10000 {
		hi, lo := utf16.EncodeRune(c)
		return fmt.Sprintf(`\u%04x\u%04x`, hi, lo)
	}
	return fmt.Sprintf(`\u%04x`, c)
}
