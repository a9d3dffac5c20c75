package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"
)

// mostMemory bounds what the values of one record may take, so that a file that lies about them is an error.
const mostMemory = 256 << 20

var errShort = errors.New("it ends in the middle of a value")

// decoder reads what an encoder wrote. Its first error stays.
type decoder struct {
	buf     []byte
	ref     time.Time
	strings []string
	last    map[Key]reflect.Value
	memory  int // that is left for this record
	err     error
}

func newDecoder() *decoder { return &decoder{last: make(map[Key]reflect.Value)} }

// take reads a value with a key into v, a pointer to a struct.
func (d *decoder) take(key Key, v any) {
	now := reflect.ValueOf(v).Elem()
	old, known := d.last[key]
	if !known || old.Type() != now.Type() {
		if len(d.last) >= mostLast {
			clear(d.last)
		}
		old = reflect.New(now.Type()).Elem()
		d.last[key] = old
	}
	d.fields(now, old)
	old.Set(now)
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.buf = nil
}

// fields reads the fields of v that are not as those of old; the others become as those.
func (d *decoder) fields(v, old reflect.Value) {
	next := d.uvarint()
	for _, k := range exported(v.Type()) {
		if next == 1 {
			d.value(v.Field(k), old.Field(k))
			next = d.uvarint()
			continue
		}
		v.Field(k).Set(old.Field(k))
		if next > 0 {
			next--
		}
	}
	if next != 0 && d.err == nil {
		d.fail(fmt.Errorf("there is a value of a field that %s does not have", v.Type()))
	}
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.buf)
	if size <= 0 {
		d.fail(errShort)
		return 0
	}
	d.buf = d.buf[size:]
	return n
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.buf)
	if size <= 0 {
		d.fail(errShort)
		return 0
	}
	d.buf = d.buf[size:]
	return n
}

// value reads v; old is of its type, and what it was before.
func (d *decoder) value(v, old reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(d.uvarint() != 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(old.Int() + d.varint())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(old.Uint() + uint64(d.varint()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(math.Float64frombits(bits.ReverseBytes64(d.uvarint())))
	case reflect.String:
		v.SetString(d.string())
	case reflect.Struct:
		if v.Type() == timeType {
			v.Set(reflect.ValueOf(d.time()))
			return
		}
		d.fields(v, old)
	case reflect.Array:
		d.elements(v, old)
	case reflect.Slice:
		n := d.length(v.Type().Elem())
		if n == 0 || d.err != nil {
			v.SetZero()
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
		d.elements(v, old)
	case reflect.Map:
		d.pairs(v)
	case reflect.Pointer:
		if d.uvarint() == 0 || !d.spend(int(v.Type().Elem().Size())) {
			v.SetZero()
			return
		}
		if old.IsNil() {
			old = reflect.New(v.Type().Elem())
		}
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem(), old.Elem())
	}
}

// length reads a length and one, and books the memory for so many elements.
func (d *decoder) length(element reflect.Type) int {
	n := d.uvarint()
	if n > uint64(len(d.buf))+1 { // each takes a byte at least
		d.fail(errShort)
		return 0
	}
	if !d.spend(int(n) * int(element.Size())) {
		return 0
	}
	return int(n)
}

func (d *decoder) spend(n int) bool {
	if d.memory -= n; d.memory < 0 {
		d.fail(errors.New("its values take too much memory"))
		return false
	}
	return true
}

func (d *decoder) elements(v, old reflect.Value) {
	zero := reflect.Zero(v.Type().Elem())
	for k := 0; k < v.Len() && d.err == nil; k++ {
		before := zero
		if k < old.Len() {
			before = old.Index(k)
		}
		d.value(v.Index(k), before)
	}
}

func (d *decoder) pairs(v reflect.Value) {
	t := v.Type()
	n := d.length(t.Elem())
	if n == 0 || d.err != nil {
		v.SetZero()
		return
	}
	zero := reflect.Zero(t.Elem())
	v.Set(reflect.MakeMap(t))
	for k := 1; k < n && d.err == nil; k++ {
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		key.SetString(d.string())
		d.value(value, zero)
		v.SetMapIndex(key, value)
	}
}

func (d *decoder) string() string {
	if n := d.uvarint(); n > 0 {
		if n > uint64(len(d.strings)) {
			d.fail(errors.New("it names a string that was not there before"))
			return ""
		}
		return d.strings[n-1]
	}
	n := d.uvarint()
	if n > uint64(len(d.buf)) {
		d.fail(errShort)
		return ""
	}
	if d.err != nil || !d.spend(int(n)) {
		return ""
	}
	s := string(d.buf[:n])
	d.buf = d.buf[n:]
	if len(s) > longString {
		return s
	}
	if len(d.strings) >= mostStrings {
		d.strings = d.strings[:0]
	}
	d.strings = append(d.strings, s)
	return s
}

func (d *decoder) time() time.Time {
	switch n := d.uvarint(); {
	case d.err != nil || n == timeZero:
		return time.Time{}
	case n == timeFar:
		sec, nano := d.varint(), d.uvarint()
		if nano >= 1e9 {
			d.fail(errors.New("a time has too many nanoseconds"))
			return time.Time{}
		}
		return time.Unix(sec, int64(nano)).In(d.ref.Location())
	default:
		n -= timeNear
		distance := unzigzag(n >> 1)
		if n&1 == 1 {
			distance *= 1000
		}
		return d.ref.Add(time.Duration(distance))
	}
}
