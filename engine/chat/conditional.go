package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// The library knows Jinja's conditional expression, a if c else b, only as the whole of an output or of an assignment,
// with one condition and an else. Others are computed by a tag in front, which puts the result into a variable:
//
//	{{ x + (a if c else b) }}
//	{% if c %}{% set rouse_1 = a %}{% else %}{% set rouse_1 = b %}{% endif %}{{ x + (rouse_1) }}
//
// All conditions of a tag are then looked at, even one behind an "and" that is false.

// conditionals rewrites tags and numbers the variables.
type conditionals struct{ made int }

// rewrite returns tag, with tags in front where it holds such expressions. It leaves elif alone, in front of which nothing
// can stand, and macro, whose defaults are computed elsewhere.
func (c *conditionals) rewrite(tag string) string {
	if !strings.Contains(tag, "if") || tag[1] == '#' || len(tag) < 4 {
		return tag
	}
	inner, open, shut := tag[2:len(tag)-2], tag[:2], tag[len(tag)-2:]
	if strings.HasPrefix(inner, "-") {
		open, inner = open+"-", inner[1:]
	}
	if strings.HasSuffix(inner, "-") {
		shut, inner = "-"+shut, inner[:len(inner)-1]
	}
	word := strings.TrimSpace(inner)
	if tag[1] == '%' && (strings.HasPrefix(word, "elif") || strings.HasPrefix(word, "macro")) {
		return tag
	}
	var before strings.Builder
	inner = c.reduce(inner, &before)
	inner = c.whole(tag[1], inner, &before)
	if before.Len() == 0 {
		return tag
	}
	front := before.String()
	if strings.HasSuffix(open, "-") { // the first tag takes the white space in front
		front = "{%-" + front[2:]
	}
	return front + open + inner + shut
}

// assignment is {% set name = %}.
var assignment = regexp.MustCompile(`^(\s*set\s+[\w.]+\s*=)(.*)$`)

// whole rewrites a conditional expression that is all of an output or assignment, if it is none of the plain ones.
func (c *conditionals) whole(kind byte, inner string, before *strings.Builder) string {
	head, expr := "", inner
	if kind == '%' {
		m := assignment.FindStringSubmatch(strings.ReplaceAll(inner, "\n", " "))
		if m == nil {
			return inner
		}
		head, expr = m[1], m[2]
	}
	_, _, otherwise, ok := conditional(expr)
	if _, _, _, chained := conditional(otherwise); !ok || otherwise != "" && !chained {
		return inner
	}
	return head + " " + c.hoist(expr, before) + " "
}

// reduce rewrites the conditional expressions in brackets, inner ones first.
func (c *conditionals) reduce(s string, before *strings.Builder) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		n := quoted(s[i:])
		if n == 0 && strings.IndexByte("([{", s[i]) >= 0 {
			end := i + bracketed(s[i:])
			b.WriteByte(s[i])
			if end-1 > i { // an unbalanced bracket is the library's to refuse
				b.WriteString(c.elements(s[i+1:end-1], before))
				b.WriteByte(s[end-1])
			}
			i = max(end, i+1)
			continue
		}
		n = max(n, 1)
		b.WriteString(s[i : i+n])
		i += n
	}
	return b.String()
}

// label is what may stand in front of a value in brackets: name= in a call, key: in an object.
var label = regexp.MustCompile(`^\s*(?:\w+\s*=[^=]|(?:'[^']*'|"[^"]*"|\w+)\s*:)`)

// elements rewrites what stands between commas.
func (c *conditionals) elements(s string, before *strings.Builder) string {
	parts := cutAt(s, ",")
	for i, p := range parts {
		p = c.reduce(p, before)
		at := len(label.FindString(p))
		if at > 0 && p[at-1] != ':' {
			at-- // the character behind = belongs to the value
		}
		if _, _, _, ok := conditional(p[at:]); ok {
			p = p[:at] + c.hoist(p[at:], before)
		}
		parts[i] = p
	}
	return strings.Join(parts, ",")
}

// hoist writes tags that compute expr and returns the variable that holds the result.
func (c *conditionals) hoist(expr string, before *strings.Builder) string {
	c.made++
	name := fmt.Sprintf("rouse_%d", c.made)
	before.WriteString(assign(name, expr))
	return name
}

func assign(name, expr string) string {
	value, condition, otherwise, ok := conditional(expr)
	switch {
	case !ok && strings.TrimSpace(expr) == "":
		return "{% set " + name + " = '' %}"
	case !ok:
		return "{% set " + name + " = " + strings.TrimSpace(expr) + " %}"
	}
	return "{% if " + condition + " %}" + assign(name, value) + "{% else %}" + assign(name, otherwise) + "{% endif %}"
}

// conditional takes value if condition else otherwise apart.
func conditional(s string) (value, condition, otherwise string, ok bool) {
	parts := cutAt(s, "if")
	if len(parts) < 2 || strings.TrimSpace(parts[0]) == "" {
		return "", "", "", false
	}
	rest := s[len(parts[0])+len("if"):]
	condition, otherwise = rest, ""
	if e := cutAt(rest, "else"); len(e) > 1 {
		condition, otherwise = e[0], rest[len(e[0])+len("else"):]
	}
	return parts[0], strings.TrimSpace(condition), otherwise, true
}

// cutAt cuts s at a comma or a word, but not in strings, brackets or longer words.
func cutAt(s, at string) []string {
	var out []string
	from := 0
	for i := 0; i < len(s); {
		n := quoted(s[i:])
		switch {
		case n > 0:
		case strings.IndexByte("([{", s[i]) >= 0:
			n = bracketed(s[i:])
		case at == "," && s[i] == ',':
			out, from, n = append(out, s[from:i]), i+1, 1
		case isWord(s[i]):
			for n < len(s)-i && isWord(s[i+n]) {
				n++
			}
			if s[i:i+n] == at {
				out, from = append(out, s[from:i]), i+n
			}
		}
		i += max(n, 1)
	}
	return append(out, s[from:])
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// quoted is the length of the string literal that s begins with, 0 for none.
func quoted(s string) int {
	if s[0] != '\'' && s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return len(s)
}

// bracketed is the length of the brackets that s begins with and of what they hold; 1 where they do not close.
func bracketed(s string) int {
	depth := 0
	for i := 0; i < len(s); {
		n := max(quoted(s[i:]), 1)
		switch {
		case n > 1:
		case strings.IndexByte("([{", s[i]) >= 0:
			depth++
		case strings.IndexByte(")]}", s[i]) >= 0:
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i += n
	}
	return 1
}
