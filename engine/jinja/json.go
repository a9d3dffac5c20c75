package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth limits the nesting of JSON that comes in.
const maxJSONDepth = 64

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
	if len(s) > maxBits/4 {
		return nil, fmt.Errorf("a number of %d digits", len(s))
	}
	b, _ := new(big.Int).SetString(s, 10) // the decoder lets only numbers through
	return b, nil
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
	r         *run
	b         strings.Builder
	item, key string // separators
	indent    string
	lines     bool // one element a line
	ascii     bool
	sorted    bool
}

// toJSON is transformers' tojson.
func toJSON(r *run, v any, a args) any {
	p := r.bind("tojson", a, 0, "ensure_ascii", "indent", "separators", "sort_keys")
	d := &dumper{r: r, item: ", ", key: ": "}
	d.ascii, d.sorted = r.truth(or(p[0], false)), r.truth(or(p[3], false))
	switch indent := or(p[1], nil).(type) {
	case nil:
	case string:
		d.indent, d.lines, d.item = indent, true, ","
	default:
		n, ok := small(indent)
		if !ok {
			r.fail("tojson: indent must be a number or a text, not '%s'", typeName(indent))
		}
		r.grow(int(max(min(n, 1<<40), 0)))
		d.indent, d.lines, d.item = strings.Repeat(" ", int(max(n, 0))), true, ","
	}
	if sep := or(p[2], nil); sep != nil {
		pair := r.unpack(sep, 2)
		item, ok := pair[0].(string)
		key, ok2 := pair[1].(string)
		if !ok || !ok2 {
			r.fail("tojson: separators must be two texts")
		}
		d.item, d.key = item, key
	}
	d.value(v, "")
	return d.b.String()
}

func (d *dumper) write(s string) { d.r.add(&d.b, s) }

func (d *dumper) value(v any, line string) {
	switch v := unmark(v).(type) {
	case nil:
		d.write("null")
	case bool:
		d.write(strconv.FormatBool(v))
	case int64, *big.Int:
		d.write(d.r.str(v))
	case float64:
		d.write(jsonFloat(v))
	case string:
		d.quote(v)
	case *List:
		d.list(v.items, line)
	case *tuple:
		d.list(v.items, line)
	case *Dict:
		d.dict(v, line)
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

// next goes to the place of element i.
func (d *dumper) next(i int, line string) {
	if i > 0 {
		d.write(d.item)
	}
	if d.lines {
		d.write("\n" + line)
	}
}

func (d *dumper) list(items []any, line string) {
	if len(items) == 0 {
		d.write("[]")
		return
	}
	d.r.walk()
	d.write("[")
	for i, e := range items {
		d.next(i, line+d.indent)
		d.value(e, line+d.indent)
	}
	if d.lines {
		d.write("\n" + line)
	}
	d.write("]")
	d.r.walking--
}

func (d *dumper) dict(v *Dict, line string) {
	if v.Len() == 0 {
		d.write("{}")
		return
	}
	d.r.walk()
	entries := v.entries
	if d.sorted {
		entries = slices.Clone(entries)
		d.r.sort(entries, func(e entry) any { return e.key }, false)
	}
	d.write("{")
	for i := range entries {
		d.next(i, line+d.indent)
		d.quote(d.keyText(entries[i].key))
		d.write(d.key)
		d.value(entries[i].value, line+d.indent)
	}
	if d.lines {
		d.write("\n" + line)
	}
	d.write("}")
	d.r.walking--
}

// keyText is the text of a key that is no string.
func (d *dumper) keyText(key any) string {
	switch key := unmark(key).(type) {
	case string:
		return key
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(key)
	case float64:
		return jsonFloat(key)
	case int64, *big.Int:
		return d.r.str(key)
	}
	d.r.fail("tojson: keys must be str, int, float, bool or None, not %s", typeName(key))
	return ""
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
