package jinja

import (
	"math"
	"strings"
)

// method is a method of a type; self is of that type.
type method func(r *run, self any, a args) any

// methods are Python's, by type, but for those that the sandbox keeps back and unsupportedAttributes.
var methods map[string]map[string]method

// unsupportedAttributes are attributes that Python has and templates do not use.
var unsupportedAttributes = map[string]map[string]bool{
	"str": set("encode", "maketrans", "translate"), "dict": set("fromkeys"),
	"int":       set("as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "imag", "numerator", "real", "to_bytes"),
	"bool":      set("as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "imag", "numerator", "real", "to_bytes"),
	"float":     set("as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "real"),
	"dict_keys": set("mapping", "isdisjoint"), "dict_items": set("mapping", "isdisjoint"), "dict_values": set("mapping"),
	"generator": set("close", "gi_code", "gi_frame", "gi_running", "gi_suspended", "gi_yieldfrom", "send", "throw"),
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func init() {
	sequence := map[string]method{"count": countItems, "index": indexItem}
	methods = map[string]map[string]method{
		"str":   textMethods(),
		"tuple": sequence,
		"range": sequence,
		"list":  {"count": countItems, "index": indexItem, "copy": copyList},
		"dict": {
			"keys": viewMethod("dict_keys"), "values": viewMethod("dict_values"), "items": viewMethod("dict_items"),
			"get": dictGet, "copy": copyDict,
		},
		"float": {"is_integer": func(r *run, self any, a args) any {
			r.bind("is_integer", a, 0)
			f := self.(float64)
			return f == math.Trunc(f) && !math.IsInf(f, 0)
		}},
	}
}

func countItems(r *run, self any, a args) any {
	v := r.bind("count", a, 1, "/value")[0]
	n, at, _ := elements(self)
	count := int64(0)
	for i := range n {
		if r.step(1); same(at(i), v) || r.equal(at(i), v) {
			count++
		}
	}
	return count
}

func indexItem(r *run, self any, a args) any {
	params := []string{"/value", "/start", "/stop"}
	if _, ok := self.(*rangeValue); ok {
		params = params[:1]
	}
	p := r.bind("index", a, 1, params...)
	n, at, _ := elements(self)
	from, to := 0, n
	if len(p) > 1 {
		var ok bool
		if from, to, _, ok = r.bounds(n, or(p[1], nil), or(p[2], nil), nil); !ok {
			r.fail("index: start and stop must be numbers")
		}
	}
	for i := from; i < to; i++ {
		if r.step(1); same(at(i), p[0]) || r.equal(at(i), p[0]) {
			return int64(i)
		}
	}
	r.fail("the value is not in the %s", typeName(self))
	return nil
}

func copyList(r *run, self any, a args) any {
	r.bind("copy", a, 0)
	return &List{r.list(self)}
}

func viewMethod(kind string) method {
	return func(r *run, self any, a args) any {
		r.bind(strings.TrimPrefix(kind, "dict_"), a, 0)
		return &view{self.(*Dict), kind}
	}
}

func dictGet(r *run, self any, a args) any {
	p := r.bind("get", a, 1, "/key", "/default")
	if v, ok := self.(*Dict).find(r.hashKey(p[0])); ok {
		return v
	}
	return or(p[1], nil)
}

func copyDict(r *run, self any, a args) any {
	r.bind("copy", a, 0)
	return r.cloneDict(self.(*Dict))
}

func (r *run) cloneDict(d *Dict) *Dict {
	r.growList(4 * d.Len())
	out := &Dict{}
	for _, e := range d.entries {
		out.put(e.hash, e.key, e.value)
	}
	return out
}
