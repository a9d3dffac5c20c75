package flight

import (
	"encoding/binary"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// Key says of which value an added one is the successor: the kind, and what it is about.
type Key struct {
	Kind uint8
	A, B string
}

// Bounds of the memory for what was written before, which are the same for both ends.
const (
	mostStrings = 1 << 15
	mostLast    = 1 << 15
	longString  = 512 // longer ones are written each time
)

// encoder writes values: of a struct the exported fields that differ from those of the value before, of a time the distance from
// the time of the round, of a string that was there before its number.
type encoder struct {
	buf     []byte
	ref     time.Time
	strings map[string]uint64
	last    map[Key]reflect.Value
}

func newEncoder() *encoder {
	return &encoder{strings: make(map[string]uint64), last: make(map[Key]reflect.Value)}
}

// add writes v, a pointer to a struct, as the successor of the last value with its key.
func (e *encoder) add(key Key, v any) {
	now := reflect.ValueOf(v).Elem()
	old, known := e.last[key]
	if !known || old.Type() != now.Type() {
		if len(e.last) >= mostLast {
			clear(e.last)
		}
		old = reflect.New(now.Type()).Elem()
		e.last[key] = old
	}
	e.fields(now, old)
	old.Set(now)
}

var timeType = reflect.TypeFor[time.Time]()

// timeOf is the time that v is.
func timeOf(v reflect.Value) time.Time {
	if v.CanAddr() {
		return *v.Addr().Interface().(*time.Time) // without an allocation
	}
	return v.Interface().(time.Time)
}

// exportedFields has the numbers of the exported fields of each type that was asked for.
var exportedFields sync.Map

// exported are the numbers of the exported fields of t, a struct.
func exported(t reflect.Type) []int {
	if known, found := exportedFields.Load(t); found {
		return known.([]int)
	}
	var list []int
	for k := range t.NumField() {
		if t.Field(k).IsExported() {
			list = append(list, k)
		}
	}
	exportedFields.Store(t, list)
	return list
}

// fields writes the fields that differ: how many further each is, and its value; 0 at the end.
func (e *encoder) fields(v, old reflect.Value) {
	skipped := uint64(1)
	for _, k := range exported(v.Type()) {
		if same(v.Field(k), old.Field(k)) {
			skipped++
			continue
		}
		e.uvarint(skipped)
		e.value(v.Field(k), old.Field(k))
		skipped = 1
	}
	e.uvarint(0)
}

func (e *encoder) uvarint(n uint64) { e.buf = binary.AppendUvarint(e.buf, n) }
func (e *encoder) varint(n int64)   { e.buf = binary.AppendVarint(e.buf, n) }

// value writes v; old is of its type, and what it was before.
func (e *encoder) value(v, old reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		n := uint64(0)
		if v.Bool() {
			n = 1
		}
		e.uvarint(n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.varint(v.Int() - old.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.varint(int64(v.Uint() - old.Uint()))
	case reflect.Float32, reflect.Float64:
		e.uvarint(bits.ReverseBytes64(math.Float64bits(v.Float())))
	case reflect.String:
		e.string(v.String())
	case reflect.Struct:
		if v.Type() == timeType {
			e.time(timeOf(v))
			return
		}
		e.fields(v, old)
	case reflect.Array:
		e.elements(v, old)
	case reflect.Slice:
		if v.IsNil() {
			e.uvarint(0)
			return
		}
		e.uvarint(uint64(v.Len()) + 1)
		e.elements(v, old)
	case reflect.Map:
		e.pairs(v)
	case reflect.Pointer:
		if v.IsNil() {
			e.uvarint(0)
			return
		}
		e.uvarint(1)
		if old.IsNil() {
			old = reflect.New(v.Type().Elem())
		}
		e.value(v.Elem(), old.Elem())
	default:
		panic("flight: " + v.Type().String() + " can't be recorded") // a test finds it: see Shape
	}
}

// elements writes those of a slice or an array, each beside the one that was in its place.
func (e *encoder) elements(v, old reflect.Value) {
	zero := reflect.Zero(v.Type().Elem())
	for k := range v.Len() {
		before := zero
		if k < old.Len() {
			before = old.Index(k)
		}
		e.value(v.Index(k), before)
	}
}

// pairs writes a map whose keys are strings, in their order.
func (e *encoder) pairs(v reflect.Value) {
	if v.IsNil() {
		e.uvarint(0)
		return
	}
	e.uvarint(uint64(v.Len()) + 1)
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	zero := reflect.Zero(v.Type().Elem())
	for _, k := range keys {
		e.string(k.String())
		e.value(v.MapIndex(k), zero)
	}
}

// string writes 0 and the string, or its number.
func (e *encoder) string(s string) {
	if n, known := e.strings[s]; known {
		e.uvarint(n)
		return
	}
	e.uvarint(0)
	e.uvarint(uint64(len(s)))
	e.buf = append(e.buf, s...)
	if len(s) > longString {
		return
	}
	if len(e.strings) >= mostStrings {
		clear(e.strings)
	}
	e.strings[strings.Clone(s)] = uint64(len(e.strings)) + 1
}

// Ways to write a time.
const (
	timeZero = iota // the zero time
	timeFar         // seconds and nanoseconds: it is far from the round's
	timeNear        // and more: the distance, in nanoseconds or microseconds
)

// farAway bounds what is written as a distance.
const farAway = 1 << 60

func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.uvarint(timeZero)
		return
	}
	d := t.Sub(e.ref)
	if d > farAway || d < -farAway || !e.ref.Add(d).Equal(t) {
		e.uvarint(timeFar)
		e.varint(t.Unix())
		e.uvarint(uint64(t.Nanosecond()))
		return
	}
	n, unit := int64(d), uint64(0)
	if n%1000 == 0 {
		n, unit = n/1000, 1
	}
	e.uvarint(zigzag(n)<<1 | unit + timeNear)
}

func zigzag(n int64) uint64 { return uint64(n<<1) ^ uint64(n>>63) }

func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// same says whether nothing of a value has to be written to have the other.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Struct:
		if a.Type() == timeType {
			return timeOf(a).Equal(timeOf(b))
		}
		for _, k := range exported(a.Type()) {
			if !same(a.Field(k), b.Field(k)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		return a.Pointer() == b.Pointer() || sameElements(a, b)
	case reflect.Array:
		return sameElements(a, b)
	case reflect.Map:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		for i := a.MapRange(); i.Next(); {
			if v := b.MapIndex(i.Key()); !v.IsValid() || !same(i.Value(), v) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		return a.IsNil() == b.IsNil() && (a.IsNil() || same(a.Elem(), b.Elem()))
	case reflect.Float32, reflect.Float64:
		return math.Float64bits(a.Float()) == math.Float64bits(b.Float())
	}
	return a.Equal(b)
}

func sameElements(a, b reflect.Value) bool {
	for k := range a.Len() {
		if !same(a.Index(k), b.Index(k)) {
			return false
		}
	}
	return true
}
