package flight

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Shape returns a hash of the recorded parts of types: programs with the same shape can read each other's records. values are
// pointers to structs. It fails for types that can't be recorded.
func Shape(values ...any) (string, error) {
	var b strings.Builder
	for _, v := range values {
		if err := describe(&b, reflect.TypeOf(v).Elem(), 0); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%016x", xxhash.Sum64String(b.String())), nil
}

var timeType = reflect.TypeFor[time.Time]()

// deepest bounds the nesting of values.
const deepest = 12

func describe(b *strings.Builder, t reflect.Type, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s lies too deep, or in itself", t)
	}
	if t == timeType {
		b.WriteString("time;")
		return nil
	}
	fmt.Fprintf(b, "%s ", t.Kind())
	switch t.Kind() {
	case reflect.Struct:
		b.WriteByte('{')
		for k := range t.NumField() {
			f := t.Field(k)
			if !f.IsExported() {
				continue
			}
			b.WriteString(f.Name + " ")
			if err := describe(b, f.Type, depth+1); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		b.WriteByte('}')
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("%s: want keys that are strings", t)
		}
		return describe(b, t.Elem(), depth+1)
	case reflect.Array:
		fmt.Fprintf(b, "%d ", t.Len())
		return describe(b, t.Elem(), depth+1)
	case reflect.Slice, reflect.Pointer:
		return describe(b, t.Elem(), depth+1)
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.String:
		b.WriteByte(';')
	default:
		return fmt.Errorf("a %s can't be recorded", t)
	}
	return nil
}
