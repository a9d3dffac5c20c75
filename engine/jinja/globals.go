package jinja

import (
	"fmt"
	"strings"
	"time"
)

// maxReason bounds the text of raise_exception, in bytes.
const maxReason = 4096

// maxRange is the sandbox's limit for range().
const maxRange = 100000

// globals are the functions that each template has.
var globals map[string]any

func init() {
	globals = map[string]any{}
	for name, call := range map[string]func(r *run, a args) any{
		"range": makeRange, "dict": makeDict, "namespace": makeNamespace, "cycler": makeCycler, "joiner": makeJoiner,
		"raise_exception": raise, "strftime_now": strftimeNow,
	} {
		globals[name] = &function{name: name, call: call}
	}
}

func makeRange(r *run, a args) any {
	if len(a.names) > 0 || len(a.pos) < 1 || len(a.pos) > 3 {
		r.fail("range wants 1 to 3 numbers")
	}
	n := [3]int64{0, 0, 1}
	for i, v := range a.pos {
		r.check(v)
		if !isInt(v) {
			r.fail("'%s' object cannot be interpreted as an integer", typeName(v))
		}
		x, ok := small(v)
		if !ok || x > 1<<40 || x < -1<<40 {
			r.fail("range: a bound of more than 2**40 is not supported")
		}
		n[i] = x
	}
	if len(a.pos) == 1 {
		n[0], n[1] = 0, n[0]
	}
	v := &rangeValue{n[0], n[1], n[2]}
	if v.step == 0 {
		r.fail("range: the step must not be zero")
	}
	if v.len() > maxRange {
		r.fail("range is longer than %d", maxRange)
	}
	return v
}

// makeDict is dict(mapping or pairs, name=value, …).
func makeDict(r *run, a args) any {
	d := &Dict{}
	if len(a.pos) > 1 {
		r.fail("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*Dict); ok {
			d = r.cloneDict(from)
		} else {
			for _, e := range r.list(a.pos[0]) {
				pair := r.unpack(e, 2)
				r.setItem(d, pair[0], pair[1])
			}
		}
	}
	for i, name := range a.names {
		r.setItem(d, name, a.values[i])
	}
	return d
}

func makeNamespace(r *run, a args) any { return &namespace{makeDict(r, a).(*Dict)} }

func makeCycler(r *run, a args) any {
	if len(a.pos) == 0 || len(a.names) > 0 {
		r.fail("cycler wants at least one value")
	}
	return &cycler{items: a.pos}
}

func makeJoiner(r *run, a args) any {
	sep, used := or(r.bind("joiner", a, 0, "sep")[0], ", "), false
	return &function{name: "joiner", call: func(r *run, a args) any {
		r.bind("joiner", a, 0)
		if !used {
			used = true
			return ""
		}
		return sep
	}}
}

func raise(r *run, a args) any {
	reason := r.str(or(r.bind("raise_exception", a, 0, "message")[0], ""))
	if reason == "" {
		reason = "no reason given"
	}
	panic(&RaisedError{strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")})
}

func strftimeNow(r *run, a args) any {
	format := r.text("strftime_now", r.bind("strftime_now", a, 1, "format")[0])
	r.grow(32 * len(format))
	text, err := strftime(r.now, format)
	if err != nil {
		r.fail("%v", err)
	}
	return text
}

// strftimeLayouts maps the directives of C's strftime to Go's layouts.
var strftimeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'H': "15", 'I': "03",
	'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
	'D': "01/02/06", 'F': "2006-01-02", 'R': "15:04", 'T': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime formats now as C's strftime in the C locale does.
func strftime(now time.Time, format string) (string, error) {
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
		switch layout, ok := strftimeLayouts[format[i]]; {
		case format[i] == '%':
			b.WriteByte('%')
		case format[i] == 'n':
			b.WriteByte('\n')
		case format[i] == 't':
			b.WriteByte('\t')
		case ok && trim:
			s := strings.TrimLeft(now.Format(layout), "0 ")
			if s == "" {
				s = "0"
			}
			b.WriteString(s)
		case ok:
			b.WriteString(now.Format(layout))
		default:
			return "", fmt.Errorf("strftime_now: unknown directive %%%c", format[i])
		}
	}
	return b.String(), nil
}
