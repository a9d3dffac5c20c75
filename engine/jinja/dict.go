package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Dict is Python's dict: it keeps the order in which keys came, and takes each hashable value for a key.
type Dict struct {
	entries []entry
	index   map[any]int // from hashKey; nil while there are few entries, which are then looked at one by one
}

type entry struct{ hash, key, value any }

// few is how many entries need no index.
const few = 8

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// Set puts a value at a string. A key that is there keeps its place.
func (d *Dict) Set(key string, value any) { d.put(key, key, value) }

// Get returns the value at a string.
func (d *Dict) Get(key string) (any, bool) { return d.find(key) }

func (d *Dict) at(hash any) int {
	if d.index != nil {
		if i, ok := d.index[hash]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		if d.entries[i].hash == hash {
			return i
		}
	}
	return -1
}

func (d *Dict) find(hash any) (any, bool) {
	if i := d.at(hash); i >= 0 {
		return d.entries[i].value, true
	}
	return nil, false
}

func (d *Dict) put(hash, key, value any) {
	if i := d.at(hash); i >= 0 {
		d.entries[i].value = value
		return
	}
	d.entries = append(d.entries, entry{hash, key, value})
	if d.index != nil {
		d.index[hash] = len(d.entries) - 1
	} else if len(d.entries) > few {
		d.index = make(map[any]int, 2*len(d.entries))
		for i := range d.entries {
			d.index[d.entries[i].hash] = i
		}
	}
}

// setItem is d[key] = value.
func (r *run) setItem(d *Dict, key, value any) {
	r.grow(4 * valueSize)
	d.put(r.hashKey(key), key, value)
}

// What stands for values that have no Go value of their own as keys.
type (
	noneKey      struct{}
	undefinedKey struct{}
	tupleKey     string
	bigKey       string
	rangeKey     struct {
		n          int
		from, step int64
	}
)

// hashKey is a Go value that is equal for equal Python values. It fails where Python finds v unhashable.
func (r *run) hashKey(v any) any {
	switch v := unmark(v).(type) {
	case nil:
		return noneKey{}
	case string:
		r.step(len(v) >> 6)
		return v
	case int64:
		return v
	case bool:
		return intOf(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return int64(v)
		}
		if math.IsNaN(v) { // equal to nothing, itself included
			return new(float64)
		}
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			b, _ := big.NewFloat(v).Int(nil)
			return bigKey(b.String())
		}
		return v
	case *big.Int:
		r.step(v.BitLen() >> 4)
		return bigKey(v.String())
	case *undefined:
		return undefinedKey{}
	case *tuple:
		var b strings.Builder
		r.hashTuple(&b, v)
		return tupleKey(b.String())
	case *rangeValue: // ranges are what they yield
		k := rangeKey{n: v.len()}
		if k.n > 0 {
			k.from = v.from
		}
		if k.n > 1 {
			k.step = v.step
		}
		return k
	case *function:
		if v.self != nil {
			r.fail("a method as a key is not supported")
		}
		return v
	case *macro, *namespace, *cycler, *generator, *loop:
		return v
	}
	r.fail("unhashable type: '%s'", typeName(v))
	return nil
}

// hashTuple writes the keys of a tuple's elements such that different tuples differ.
func (r *run) hashTuple(b *strings.Builder, t *tuple) {
	r.walk()
	for _, e := range t.items {
		var text, kind string
		switch k := r.hashKey(e).(type) {
		case string:
			kind, text = "s", k
		case int64:
			kind, text = "i", strconv.FormatInt(k, 10)
		case float64:
			kind, text = "f", strconv.FormatFloat(k, 'g', -1, 64)
		case tupleKey:
			kind, text = "t", string(k)
		case bigKey:
			kind, text = "b", string(k)
		case noneKey:
			kind = "n"
		case undefinedKey:
			kind = "u"
		default:
			r.fail("a tuple that holds a %s as a key is not supported", typeName(e))
		}
		r.grow(len(text) + 8)
		b.WriteString(kind)
		b.WriteString(strconv.Itoa(len(text)))
		b.WriteByte(':')
		b.WriteString(text)
	}
	r.walking--
}
