package jinja

import "strings"

const (
	maxReason = 4096   // bytes of raise_exception's text
	maxRange  = 100000 // the sandbox's
)

var globals = map[string]*function{}

func init() {
	for name, f := range map[string]*routine{
		"range":           {raw: makeRange},
		"dict":            {raw: func(r *run, _ any, a args) any { return makeDict(r, a) }},
		"namespace":       {raw: func(r *run, _ any, a args) any { return &namespace{makeDict(r, a)} }},
		"raise_exception": define(raise, "message", ""),
		"strftime_now":    define(strftimeNow, "format", required{}),
	} {
		globals[name] = &function{name: name, routine: f}
	}
}

// refusedGlobals are Jinja's others. Parse refuses a template that calls one.
var refusedGlobals = words("cycler joiner lipsum self super")

func makeRange(r *run, _ any, a args) any {
	if len(a.names) > 0 || len(a.pos) < 1 || len(a.pos) > 3 {
		r.fail("range wants 1 to 3 numbers")
	}
	n := [3]int{0, 0, 1}
	for i, v := range a.pos {
		if n[i] = r.number("range", v); n[i] == 1<<40 || n[i] == -1<<40 {
			r.fail("range: a bound of 2**40 is not supported")
		}
	}
	if len(a.pos) == 1 {
		n[0], n[1] = 0, n[0]
	}
	from, to, step := n[0], n[1], n[2]
	if step == 0 {
		r.fail("range: the step must not be zero")
	}
	v := &rangeValue{from: int64(from), step: int64(step), n: max((to-from+step-1)/step, 0)}
	if step < 0 {
		v.n = max((from-to-step-1)/-step, 0)
	}
	if v.n > maxRange {
		r.fail("range is longer than %d", maxRange)
	}
	return v
}

func makeDict(r *run, a args) *Dict {
	d := &Dict{}
	if len(a.pos) > 1 {
		r.fail("dict expected at most 1 argument, got %d", len(a.pos))
	}
	for _, v := range a.pos {
		if from, ok := v.(*Dict); ok {
			v = &view{from, "dict_items"}
		}
		for _, e := range r.list(v) {
			pair := r.unpack(e, 2)
			r.setItem(d, pair[0], pair[1])
		}
	}
	for i, name := range a.names {
		r.setItem(d, name, a.values[i])
	}
	return d
}

func raise(r *run, _ any, a []any) any {
	reason := r.str(a[0])
	if reason == "" {
		reason = "no reason given"
	}
	panic(&RaisedError{strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")})
}

var strftimeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'H': "15", 'I': "03",
	'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
	'D': "01/02/06", 'F': "2006-01-02", 'R': "15:04", 'T': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	'%': "%", 'n': "\n", 't': "\t",
}

// strftimeNow formats as C's strftime in the C locale.
func strftimeNow(r *run, _ any, a []any) any {
	format := r.text("strftime_now", a[0])
	r.grow(32 * len(format))
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		trim := format[i] == '-' && i+1 < len(format) // %-d: without leading zeros
		if trim {
			i++
		}
		layout, ok := strftimeLayouts[format[i]]
		if !ok {
			r.fail("strftime_now: unknown directive %%%c", format[i])
		}
		text := r.now.Format(layout)
		if trim {
			if text = strings.TrimLeft(text, "0 "); text == "" {
				text = "0"
			}
		}
		b.WriteString(text)
	}
	return b.String()
}
