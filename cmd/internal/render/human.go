package render

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// human returns v's JSON value, with durations as texts such as "1m30s" instead of numbers without a unit.
func human(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	if d, is := v.Interface().(time.Duration); is {
		return d.String()
	}
	switch v.Interface().(type) {
	case json.Marshaler, encoding.TextMarshaler:
		return v.Interface()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return human(v.Elem())
	case reflect.Struct:
		var o object
		o.add(v)
		return o
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && (v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8) {
			return v.Interface()
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = human(v.Index(i))
		}
		return list
	case reflect.Map:
		if v.IsNil() || v.Type().Key().Kind() != reflect.String {
			return v.Interface()
		}
		m := make(map[string]any, v.Len())
		for _, k := range v.MapKeys() {
			m[k.String()] = human(v.MapIndex(k))
		}
		return m
	}
	return v.Interface()
}

// object is a JSON object with its fields in order.
type object []field

type field struct {
	name  string
	value any
}

// add adds the fields of a struct, including embedded structs'.
func (o *object) add(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		value := v.Field(i)
		switch {
		case !f.IsExported() || tag == "-" && options == "":
			continue
		case strings.Contains(options, "omitempty") && empty(value), strings.Contains(options, "omitzero") && value.IsZero():
			continue
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			o.add(value)
			continue
		case tag == "":
			tag = f.Name
		}
		*o = append(*o, field{tag, human(value)})
	}
}

// empty reports whether omitempty omits v.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(f.name) // a text always marshals
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(append(append(name, ':'), value...))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
