package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Values that templates see: nil, bool, int, float64, string, list and *exec.Dict, gonja's ordered object (an empty
// object is an empty Go map). Templates print objects and walk over them, and the order is the client's.

// list is an array whose negative indices count from the end, the first element included.
type list []any

// GetItem is gonja's hook for x[i].
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if !ok {
		return exec.AsValue(nil), false
	}
	if i < 0 {
		i += len(l)
	}
	if i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

// object builds an ordered object; values are such that exec.ToValue takes them.
type object struct{ pairs []*exec.Pair }

func (o *object) add(key string, value any) {
	o.pairs = append(o.pairs, &exec.Pair{Key: exec.AsValue(key), Value: exec.ToValue(value)})
}

func (o *object) dict() *exec.Dict { return &exec.Dict{Pairs: o.pairs} }

// variables are what the template of t sees.
func (t *Template) variables(messages []Message, o Options) (map[string]any, error) {
	all := make(list, len(messages))
	for i := range messages {
		all[i] = messageValue(&messages[i], o.Guard)
	}
	vars := map[string]any{
		"messages":              all,
		"add_generation_prompt": o.AddGenerationPrompt,
		"bos_token":             t.bos,
		"eos_token":             t.eos,
		"tools":                 nil,
	}
	if len(o.Tools) > 0 && string(bytes.TrimSpace(o.Tools)) != "null" {
		tools, err := parseJSON(string(o.Tools), o.Guard)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if l, ok := tools.(list); !ok {
			return nil, errors.New("tools: not a JSON array")
		} else if len(l) > 0 {
			vars["tools"] = l
		}
	}
	for name, raw := range o.Extra {
		if _, taken := vars[name]; taken {
			return nil, fmt.Errorf("template variable %q is set by the server: leave it out", name)
		}
		v, err := parseJSON(string(raw), o.Guard)
		if err != nil {
			return nil, fmt.Errorf("template variable %q: %w", name, err)
		}
		vars[name] = v
	}
	return vars, nil
}

// messageValue is a message as templates know it: fields without a value are left out, and a message that only calls
// tools has the content None.
func messageValue(m *Message, guard func(string) string) *exec.Dict {
	var o object
	o.add("role", guard(m.Role))
	if m.Content == "" && len(m.ToolCalls) > 0 {
		o.add("content", nil)
	} else {
		o.add("content", guard(m.Content))
	}
	for _, f := range []struct{ key, value string }{{"name", m.Name}, {"tool_call_id", m.ToolCallID}, {"reasoning_content", m.Reasoning}} {
		if f.value != "" {
			o.add(f.key, guard(f.value))
		}
	}
	if len(m.ToolCalls) == 0 {
		return o.dict()
	}
	calls := make(list, len(m.ToolCalls))
	for i, c := range m.ToolCalls {
		var arguments any = guard(c.Arguments)
		if v, err := parseJSON(c.Arguments, guard); err == nil {
			arguments = v
		}
		var function, call object
		function.add("name", guard(c.Name))
		function.add("arguments", arguments)
		call.add("id", guard(c.ID))
		call.add("type", "function")
		call.add("function", function.dict())
		calls[i] = call.dict()
	}
	o.add("tool_calls", calls)
	return o.dict()
}

// maxDepth limits the nesting of JSON in requests.
const maxDepth = 64

// parseJSON reads one JSON value and keeps the order of its objects.
func parseJSON(text string, guard func(string) string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	v, err := parseValue(d, guard, 0)
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not valid JSON: text after the value")
	}
	return v, nil
}

func parseValue(d *json.Decoder, guard func(string) string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch v := token.(type) {
	case string:
		return guard(v), nil
	case json.Number:
		return number(v), nil
	case json.Delim:
		if v == '[' {
			return parseList(d, guard, depth)
		}
		return parseObject(d, guard, depth)
	default: // bool, nil
		return v, nil
	}
}

func parseList(d *json.Decoder, guard func(string) string, depth int) (any, error) {
	l := list{}
	for d.More() {
		e, err := parseValue(d, guard, depth+1)
		if err != nil {
			return nil, err
		}
		l = append(l, e)
	}
	_, err := d.Token()
	return l, err
}

func parseObject(d *json.Decoder, guard func(string) string, depth int) (any, error) {
	var o object
	at := map[string]int{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := guard(key.(string)) // the decoder lets nothing else through in front of a value
		e, err := parseValue(d, guard, depth+1)
		if err != nil {
			return nil, err
		}
		if i, again := at[name]; again { // the last one counts, in the place of the first
			o.pairs[i].Value = exec.ToValue(e)
			continue
		}
		at[name] = len(o.pairs)
		o.add(name, e)
	}
	_, err := d.Token()
	if len(o.pairs) == 0 { // the library takes a Dict for true, even an empty one
		return map[string]any{}, err
	}
	return o.dict(), err
}

// number is an int where the text is one, else a float64.
func number(n json.Number) any {
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil {
		return n.String()
	}
	return f
}

// style is how dumps writes: Python's json.dumps.
type style struct {
	item, key string // separators
	indent    string // "" for one line
	sorted    bool
}

// dumps writes v as Python's json.dumps(v, ensure_ascii=False) does.
func dumps(b *strings.Builder, v *exec.Value, s style, line string) error {
	switch {
	case v.IsError():
		return errors.New(v.Error())
	case v.IsNil():
		b.WriteString("null")
	case v.IsString():
		quote(b, v.String())
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsInteger():
		b.WriteString(strconv.Itoa(v.Integer()))
	case v.IsFloat():
		b.WriteString(floatText(v.Float()))
	case v.IsDict():
		return dumpObject(b, v, s, line)
	case v.IsList():
		return dumpList(b, v, s, line)
	default:
		return fmt.Errorf("tojson: %T has no JSON form", v.Interface())
	}
	return nil
}

func dumpList(b *strings.Builder, v *exec.Value, s style, line string) (err error) {
	inner := line + s.indent
	b.WriteByte('[')
	n := 0
	v.Iterate(func(i, _ int, e, _ *exec.Value) bool {
		s.next(b, i, inner)
		err = dumps(b, e, s, inner)
		n++
		return err == nil
	}, func() {})
	s.end(b, n, line)
	b.WriteByte(']')
	return err
}

func dumpObject(b *strings.Builder, v *exec.Value, s style, line string) error {
	inner := line + s.indent
	keys := v.Keys()
	if s.sorted {
		slices.SortFunc(keys, func(x, y *exec.Value) int { return strings.Compare(x.String(), y.String()) })
	}
	b.WriteByte('{')
	for i, k := range keys {
		s.next(b, i, inner)
		quote(b, k.String())
		b.WriteString(s.key)
		e, _ := v.GetItem(k.String())
		if err := dumps(b, e, s, inner); err != nil {
			return err
		}
	}
	s.end(b, len(keys), line)
	b.WriteByte('}')
	return nil
}

func (s style) next(b *strings.Builder, i int, line string) {
	if i > 0 {
		b.WriteString(s.item)
	}
	if s.indent != "" {
		b.WriteByte('\n')
		b.WriteString(line)
	}
}

func (s style) end(b *strings.Builder, n int, line string) {
	if s.indent != "" && n > 0 {
		b.WriteByte('\n')
		b.WriteString(line)
	}
}

func quote(b *strings.Builder, s string) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	text := strings.TrimSuffix(buf.String(), "\n")
	// Go escapes these two for JavaScript's sake; Python does not
	b.WriteString(strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(text))
}

// floatText is Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.Replace(strconv.FormatFloat(f, 'g', -1, 64), "+Inf", "Infinity", 1)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
