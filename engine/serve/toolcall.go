package serve

import (
	"encoding/json"
	"strings"
)

// callReader parses {"name": …, "arguments": {…}} byte by byte. It accepts a surrounding {"type": "function",
// "function": {…}}, unknown members, and arguments in a JSON string.
//
// jsontext rejects what is almost JSON, such as a raw line feed, and starts a cut string again.
type callReader struct {
	arguments string // preferred member; others are accepted
	name      string
	begun     bool
	done, bad bool

	wrapped int // open objects around the members
	depth   int // of the current value; -1: before it
	state   callState
	value   valueKind
	text    bool            // within a string
	escape  bool            // after a backslash
	token   strings.Builder // key or string value
	args    strings.Builder // not yet taken
	quoted  bool            // the arguments are in a string
	isText  bool            // the current value is a string
}

type callState int

const (
	callValue  callState = iota // initial, for arguments alone
	callMember                  // before a key or an end
	callKey
	callColon // after a key
)

type valueKind int

const (
	valueNone valueKind = iota // the object itself
	valueName
	valueArguments
	valueOther
	valueFunction
)

// take returns "{}" for a call without arguments.
func (c *callReader) take() string {
	args := c.args.String()
	c.args.Reset()
	if c.done && !c.begun {
		c.begun = true
		if args == "" {
			return "{}"
		}
	}
	return args
}

// write returns how many bytes it read.
func (c *callReader) write(text string) int {
	for i := range len(text) {
		c.byte(text[i])
		if c.done || c.bad {
			return i + 1
		}
		if c.value == valueArguments && c.state == callValue && !c.begun && c.name != "" && c.depth >= 0 && !c.quoted {
			c.begun = true
		}
	}
	return len(text)
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

func (c *callReader) byte(b byte) {
	inside := c.text
	c.follow(b)
	switch c.state {
	case callMember:
		c.member(b)
	case callKey:
		c.token.WriteByte(b)
		if !c.text {
			c.state = callColon
		}
	case callColon:
		if b == ':' {
			c.key()
		} else if !isBlank(b) {
			c.bad = true
		}
	case callValue:
		c.inValue(b, inside)
	}
}

func (c *callReader) follow(b byte) {
	switch {
	case c.escape:
		c.escape = false
	case b == '"':
		c.text = !c.text
	case b == '\\':
		c.escape = c.text
	}
}

func (c *callReader) member(b byte) {
	switch {
	case isBlank(b) || b == ',':
	case b == '"':
		c.token.Reset()
		c.token.WriteByte(b)
		c.state = callKey
	case b == '}':
		if c.wrapped--; c.wrapped == 0 {
			c.done = true
		}
	default:
		c.bad = true
	}
}

func (c *callReader) key() {
	var key string
	if json.Unmarshal([]byte(c.token.String()), &key) != nil {
		c.bad = true
		return
	}
	c.state, c.depth, c.isText = callValue, -1, false
	c.token.Reset()
	switch {
	case key == "name" || key == "tool_name":
		c.value = valueName
	case key == c.arguments || key == "arguments" || key == "parameters":
		c.value = valueArguments
	case key == "function":
		c.value = valueFunction
	default:
		c.value = valueOther
	}
}

// inValue handles a byte in or before a value. inside: the byte is in a string.
//
//  1. The call's own object, or the surrounding one, opens.
//  2. A value begins. "function" may be an object with the members, or the name.
//  3. It continues: strings are skipped, brackets counted.
//  4. It ends: a string with its quote, an object with its bracket, other values before a comma or bracket.
func (c *callReader) inValue(b byte, inside bool) {
	if c.depth < 0 && isBlank(b) {
		return
	}
	if c.value == valueNone || c.value == valueFunction && c.depth < 0 && b == '{' { // 1
		c.bad = b != '{'
		c.wrapped++
		c.state = callMember
		return
	}
	if c.depth < 0 { // 2
		if c.value == valueFunction {
			c.value = valueName
		}
		c.depth, c.isText = 0, b == '"'
		c.quoted = c.quoted || c.isText && c.value == valueArguments
	}
	if c.isText {
		c.token.WriteByte(b)
		if !c.text {
			c.end()
		}
		return
	}
	opens, closes := !inside && (b == '{' || b == '['), !inside && (b == '}' || b == ']')
	switch {
	case opens: // 3
		c.depth++
	case c.depth == 0 && (closes || b == ',' && !inside): // 4, after a number, true, false or null
		c.end()
		if !c.done {
			c.member(b)
		}
		return
	case closes:
		c.depth--
	}
	if c.value == valueArguments {
		c.args.WriteByte(b)
	}
	if c.depth == 0 && closes { // 4
		c.end()
	}
}

func (c *callReader) end() {
	switch c.value {
	case valueName:
		if json.Unmarshal([]byte(c.token.String()), &c.name) != nil {
			c.bad = true
		}
	case valueArguments:
		if c.isText {
			var text string
			if json.Unmarshal([]byte(c.token.String()), &text) == nil {
				c.args.WriteString(text)
			}
		}
		c.begun = c.begun || c.name != ""
		if c.wrapped == 0 { // arguments alone
			c.done = true
		}
	}
	c.state = callMember
}
