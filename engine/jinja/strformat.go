package jinja

import (
	"strconv"
	"strings"
)

// formatMethod is str.format.
func formatMethod(r *run, self any, a args) any {
	named := &Dict{}
	for i, name := range a.names {
		r.setItem(named, name, a.values[i])
	}
	f := &formatter{r: r, pos: a.pos, named: named}
	return f.run(self.(string), 2)
}

// formatMap is str.format_map.
func formatMap(r *run, self any, a args) any {
	d, ok := r.bind("format_map", a, 1, "/mapping")[0].(*Dict)
	if !ok {
		r.fail("format_map wants a mapping")
	}
	f := &formatter{r: r, named: d}
	return f.run(self.(string), 2)
}

// formatter fills in the fields of a format.
type formatter struct {
	r     *run
	pos   []any
	named *Dict
	auto  int // the next field without a name; -1 after one with a number
}

func (f *formatter) run(format string, depth int) string {
	if depth < 0 {
		f.r.fail("max string recursion exceeded")
	}
	var b strings.Builder
	write := func(s string) { f.r.add(&b, s) }
	for format != "" {
		i := strings.IndexAny(format, "{}")
		if i < 0 {
			write(format)
			break
		}
		write(format[:i])
		c := format[i]
		format = format[i+1:]
		switch {
		case format != "" && format[0] == c:
			write(string(c))
			format = format[1:]
		case c == '}':
			f.r.fail("single '}' encountered in format string")
		default:
			end := fieldEnd(format)
			if end < 0 {
				f.r.fail("expected '}' before end of string")
			}
			write(f.field(format[:end], depth))
			format = format[end+1:]
		}
	}
	return b.String()
}

// fieldEnd is where the field ends that s begins with.
func fieldEnd(s string) int {
	depth, bracket := 1, false
	for i := range len(s) {
		switch {
		case s[i] == '[':
			bracket = true
		case s[i] == ']':
			bracket = false
		case bracket:
		case s[i] == '{':
			depth++
		case s[i] == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats one: name, !conversion and :specification.
func (f *formatter) field(text string, depth int) string {
	name, conversion, spec := text, "", ""
	bracket := false
	for i := range len(text) {
		c := text[i]
		bracket = c == '[' || bracket && c != ']'
		if bracket || c != '!' && c != ':' {
			if c == '{' && !bracket {
				f.r.fail("unexpected '{' in field name")
			}
			continue
		}
		name = text[:i]
		if c == ':' {
			spec = text[i+1:]
			break
		}
		rest := text[i+1:]
		if rest == "" || len(rest) > 1 && rest[1] != ':' {
			f.r.fail("expected ':' after conversion specifier")
		}
		if conversion = rest[:1]; len(rest) > 1 {
			spec = rest[2:]
		}
		break
	}
	v := f.value(name)
	switch conversion {
	case "":
	case "s":
		v = f.r.str(v)
	case "r":
		v = f.r.reprOf(v)
	case "a":
		v = ascii(f.r.reprOf(v))
	default:
		f.r.fail("unknown conversion specifier '%s'", conversion)
	}
	return f.r.format(v, f.run(spec, depth-1))
}

// value finds what a field's name stands for: an argument, then attributes and elements of it.
func (f *formatter) value(name string) any {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	v := f.argument(name[:end], end == len(name))
	for rest := name[end:]; rest != ""; {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			if end == 1 {
				f.r.fail("empty attribute in format string")
			}
			v = f.r.attribute(v, rest[1:end])
			rest = rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if end < 2 {
			f.r.fail("missing ']' or empty attribute in format string")
		}
		var index any = rest[1:end]
		if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil && everyRune(rest[1:end], isDecimal) {
			index = n
		}
		v = f.r.getItem(v, index)
		if rest = rest[end+1:]; rest != "" && rest[0] != '.' && rest[0] != '[' {
			f.r.fail("only '.' or '[' may follow ']' in format field specifier")
		}
	}
	return v
}

// argument is the one that the beginning of a field's name means. As in Python's string.Formatter, whole names are what
// makes the numbering automatic or not.
func (f *formatter) argument(name string, whole bool) any {
	number := everyRune(name, isDecimal)
	switch {
	case name == "" && whole:
		if f.auto < 0 {
			f.r.fail("cannot switch from manual field specification to automatic field numbering")
		}
		name = strconv.Itoa(f.auto)
		f.auto++
	case number && whole:
		if f.auto > 0 {
			f.r.fail("cannot switch from automatic field numbering to manual field specification")
		}
		f.auto = -1
	case !number:
		v, ok := f.named.find(name)
		if !ok {
			f.r.fail("the format's field '%s' has no argument", name)
		}
		return v
	}
	i, err := strconv.Atoi(name)
	if err != nil || i >= len(f.pos) {
		f.r.fail("replacement index %s out of range for positional args", name)
	}
	return f.pos[i]
}
