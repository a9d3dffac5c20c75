package constrain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

type object struct {
	keys   []string
	values map[string]any
}

func (o *object) get(key string) any {
	return o.values[key]
}

func (o *object) has(key string) bool {
	_, ok := o.values[key]
	return ok
}

// where returns a JSON pointer from v to o.
func where(v any, o *object) (path string, found bool) {
	switch v := v.(type) {
	case *object:
		for _, k := range v.keys {
			if path, found = where(v.values[k], o); found {
				return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k) + path, true
			}
		}
		return "", v == o
	case []any:
		for i, item := range v {
			if path, found = where(item, o); found {
				return "/" + strconv.Itoa(i) + path, true
			}
		}
	}
	return "", false
}

// readJSON returns nil, bool, json.Number, string, []any or *object.
func readJSON(data []byte) (any, error) {
	if len(data) > maxSource {
		return nil, formError("the schema has %d bytes: want at most %d", len(data), maxSource)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err != nil {
		if _, ok := errors.AsType[*FormError](err); ok {
			return nil, err
		}
		return nil, formError("the schema is not JSON: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, formError("the schema is not JSON: something follows its end")
	}
	return v, nil
}

func readValue(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth > maxDepth {
		return nil, formError("the schema is nested more than %d deep", maxDepth)
	}
	if delim == '[' {
		list := []any{}
		for d.More() {
			v, err := readValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	o := &object{values: map[string]any{}}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, ok := k.(string)
		if !ok {
			return nil, formError("the schema is not JSON: an object's key is no string")
		}
		v, err := readValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		if !o.has(key) {
			o.keys = append(o.keys, key)
		}
		o.values[key] = v
	}
	_, err = d.Token()
	return o, err
}

func writeJSON(v any) string {
	var b strings.Builder
	writeValue(&b, v, false)
	return b.String()
}

// sameJSON returns a text that is the same for equal values: numbers by value, objects in any order.
func sameJSON(v any) string {
	var b strings.Builder
	writeValue(&b, v, true)
	return b.String()
}

func writeValue(b *strings.Builder, v any, same bool) {
	switch v := v.(type) {
	case json.Number:
		if r, ok := parseNumber(v.String()); ok && same {
			b.WriteString(r.RatString())
		} else {
			b.WriteString(v.String())
		}
	case string:
		b.WriteString(`"` + jsonText(v) + `"`)
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeValue(b, x, same)
		}
		b.WriteByte(']')
	case *object:
		keys := v.keys
		if same {
			keys = slices.Sorted(slices.Values(keys))
		}
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + jsonText(k) + `":`)
			writeValue(b, v.values[k], same)
		}
		b.WriteByte('}')
	case nil:
		b.WriteString("null")
	default:
		fmt.Fprint(b, v)
	}
}

func (c *schemaReader) common(a, b []any) (all []any) {
	has := map[string]bool{}
	for _, v := range b {
		text := sameJSON(v)
		has[text] = true
		c.meter.spend(1+len(text)/16, exprSize+len(text))
	}
	for _, v := range a {
		if text := sameJSON(v); c.spend(1+len(text)/16) && has[text] {
			all = append(all, v)
		}
	}
	return all
}
