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

const maxJSONDepth = 64

// maxDigits is less than the 4300 that Python reads.
const maxDigits = 3500

// FromJSON reads one JSON value as json.loads does, and keeps the order of its objects. Each string and key passes
// through text, which may be nil.
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
		list, dict := &List{items: []any{}}, &Dict{}
		for d.More() {
			var key any
			if v == '{' {
				if key, err = d.Token(); err != nil {
					return nil, err
				}
			}
			e, err := readValue(d, text, depth+1)
			if err != nil {
				return nil, err
			}
			if k, ok := key.(string); ok {
				dict.Set(text(k), e)
			} else {
				list.items = append(list.items, e)
			}
		}
		_, err := d.Token()
		if v == '{' {
			return dict, err
		}
		return list, err
	}
	return token, nil
}

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
		text := floatRepr(v)
		if name, ok := map[string]string{"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text]; ok {
			text = name
		}
		d.write(text)
	case string:
		d.quote(v)
	case *List, *tuple:
		items, _ := sequence(v)
		d.all("[", "]", len(items), line, func(i int, line string) { d.value(items[i], line) })
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

func (d *dumper) all(open, end string, n int, line string, element func(i int, line string)) {
	d.write(open)
	if n == 0 {
		d.write(end)
		return
	}
	defer d.r.walk()()
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
}

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
		d.write(jsonEscape(c))
		_, n := utf8.DecodeRuneInString(s[i:])
		from = i + n
	}
	d.write(s[from:])
	d.write(`"`)
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`}

func jsonEscape(c rune) string {
	if s, ok := jsonEscapes[c]; ok {
		return s
	}
	if c >= 0x10000 {
		hi, lo := utf16.EncodeRune(c)
		return fmt.Sprintf(`\u%04x\u%04x`, hi, lo)
	}
	return fmt.Sprintf(`\u%04x`, c)
}
