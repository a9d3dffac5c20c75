package chat

import "strings"

// trimBlocks does to a template's source what Jinja's trim_blocks and lstrip_blocks do: the line end behind a block or
// comment goes, and so does the white space in front of one that begins its line. (The library's own lstrip_blocks
// also eats the space in "{{ a }} {% if b %}".) On the way it rewrites the conditional expressions that the library does
// not know.
func trimBlocks(source string) string {
	var b strings.Builder
	var c conditionals
	lineStart := true // only white space since the last line end
	for source != "" {
		at := strings.IndexByte(source, '{')
		if at < 0 || at+1 == len(source) {
			break
		}
		kind := source[at+1]
		if kind != '{' && kind != '%' && kind != '#' {
			lineStart = writeText(&b, source[:at+1], lineStart)
			source = source[at+1:]
			continue
		}
		text := source[:at]
		if kind != '{' && !strings.HasPrefix(source[at+2:], "+") && !strings.HasPrefix(source[at+2:], "-") {
			text = trimLine(text, lineStart)
		}
		writeText(&b, text, lineStart)
		tag := source[at : at+tagLength(source[at:])]
		source = source[at+len(tag):]
		lineStart = false
		if kind != '{' && !strings.HasSuffix(tag, "+%}") && !strings.HasSuffix(tag, "+#}") {
			rest := strings.TrimPrefix(strings.TrimPrefix(source, "\r"), "\n")
			if len(rest) < len(source) && source[len(source)-len(rest)-1] == '\n' {
				source, lineStart = rest, true
			}
		}
		if kind == '%' { // the plus signs have done their work
			tag = strings.TrimSuffix(strings.TrimSuffix(tag, "%}"), "+")
			tag = "{%" + strings.TrimPrefix(tag[2:], "+") + "%}"
		}
		b.WriteString(c.rewrite(tag))
		if isRaw(tag) { // its text is no template
			end := max(strings.Index(source, "{%"), 0)
			lineStart = writeText(&b, source[:end], lineStart)
			source = source[end:]
		}
	}
	b.WriteString(source)
	return b.String()
}

// writeText writes text and says whether what follows begins a line.
func writeText(b *strings.Builder, text string, lineStart bool) bool {
	b.WriteString(text)
	line := text[strings.LastIndexByte(text, '\n')+1:]
	return (lineStart || len(line) < len(text)) && strings.Trim(line, " \t") == ""
}

// trimLine takes the white space off that the last line of text consists of.
func trimLine(text string, lineStart bool) string {
	from := strings.LastIndexByte(text, '\n') + 1
	if from == 0 && !lineStart || strings.Trim(text[from:], " \t") != "" {
		return text
	}
	return text[:from]
}

// tagLength is the length of the tag that s begins with, its strings left in peace; all of s if it has no end.
func tagLength(s string) int {
	closing := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[s[1]]
	var quote byte
	depth := 0 // of { in an expression
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case s[1] == '#':
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
			continue
		case c == '\'' || c == '"':
			quote = c
			continue
		case c == '{':
			depth++
			continue
		case c == '}' && depth > 0:
			depth--
			continue
		}
		if strings.HasPrefix(s[i:], closing) {
			return i + 2
		}
	}
	return len(s)
}

// isRaw says whether tag is {% raw %}.
func isRaw(tag string) bool {
	return tag[1] == '%' && strings.Trim(tag, "{}%+- \t\r\n") == "raw"
}
