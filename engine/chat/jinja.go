package chat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controlStructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

const (
	maxRange  = 1 << 16 // elements of range()
	maxPrompt = 8 << 20 // bytes of a rendered prompt
	maxSource = 1 << 16 // bytes of a template
	maxNest   = 100     // brackets within brackets: the library's parser takes 6 KB of stack for each
	maxCalls  = 200     // macros within macros
)

// jinja is a parsed template.
type jinja struct{ template *exec.Template }

// generation marks the assistant's text for training; for a prompt it means nothing.
var generation = regexp.MustCompile(`\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}`)

func parseJinja(source string) (j *jinja, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("syntax: %v", p)
		}
	}()
	if len(source) > maxSource {
		return nil, fmt.Errorf("the template has %d bytes, at most %d are read", len(source), maxSource)
	}
	if d := nesting(source); d > maxNest {
		return nil, fmt.Errorf("the template nests brackets %d deep, at most %d are read", d, maxNest)
	}
	source = generation.ReplaceAllStringFunc(source, func(tag string) string {
		m := generation.FindStringSubmatch(tag)
		if m[2] == "end" {
			return "{%" + m[1] + " endif " + m[3] + "%}"
		}
		return "{%" + m[1] + " if true " + m[3] + "%}"
	})
	c := config.New()
	t, err := exec.NewTemplate(templateName, c, alone{trimBlocks(source)}, environment())
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil { // the outer message repeats the whole template
			err = inner
		}
		return nil, errors.New("syntax: " + shorten(err.Error()))
	}
	return &jinja{t}, nil
}

// nesting is how deep the brackets of source nest, text and strings included: an upper limit of the expressions' depth.
func nesting(source string) int {
	depth, most := 0, 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			depth++
			most = max(most, depth)
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return most
}

// environment is what Hugging Face's templates may use: the library's own, repaired where python.go says.
func environment() *exec.Environment {
	methods := builtins.Methods
	methods.Dict, methods.Str = objectMethods, textMethods
	global := exec.EmptyContext().Update(builtins.GlobalFunctions)
	global.Set("range", rangeList)
	return &exec.Environment{
		Context: global, Filters: pythonFilters(), Tests: builtins.Tests,
		ControlStructures: statements(), Methods: methods,
	}
}

// statements are the library's, less those that read other templates.
func statements() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{}
	for _, name := range []string{"block", "break", "call", "continue", "do", "filter", "for", "if", "raw", "set", "with"} {
		if p, ok := builtins.ControlStructures.Get(name); ok {
			set[name] = p
		}
	}
	macro, _ := builtins.ControlStructures.Get("macro")
	set["macro"] = func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		s, err := macro(p, args)
		if m, ok := s.(*controlStructures.MacroControlStructure); ok {
			return boundedMacro{m}, err
		}
		return s, err
	}
	return exec.NewControlStructureSet(set)
}

// boundedMacro is a macro that cannot call itself forever: a goroutine whose stack overflows takes the process along.
type boundedMacro struct {
	*controlStructures.MacroControlStructure
}

// callDepth is the template variable that counts the macros being run: an *int, one for each render.
const callDepth = "__call_depth__"

// Execute defines the macro.
func (m boundedMacro) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	f, err := exec.MacroNodeToFunc(m.Macro, r)
	if err != nil {
		return fmt.Errorf("macro %s: %w", m.Name, err)
	}
	v, _ := r.Environment.Context.Get(callDepth)
	depth, ok := v.(*int)
	if !ok {
		return fmt.Errorf("macro %s: %s belongs to the server", m.Name, callDepth)
	}
	r.Environment.Context.Set(m.Name, exec.Macro(func(args *exec.VarArgs) *exec.Value {
		if *depth++; *depth > maxCalls {
			return exec.AsValue(fmt.Errorf("macro %s: more than %d calls within calls", m.Name, maxCalls))
		}
		defer func() { *depth-- }()
		return f(args)
	}))
	return nil
}

// render runs the template.
func (j *jinja) render(vars map[string]any, now time.Time) (out string, err error) {
	refused := ""
	vars["raise_exception"] = func(args *exec.VarArgs) (any, error) {
		refused = args.First().String()
		if refused == "" {
			refused = "no reason given"
		}
		return nil, errors.New(refused)
	}
	vars["strftime_now"] = func(args *exec.VarArgs) (any, error) {
		return strftime(now, args.First().String())
	}
	vars[callDepth] = new(int)
	defer func() {
		if p := recover(); p != nil {
			out, err = "", fmt.Errorf("chat template: %v", p)
		}
	}()
	w := &limited{}
	err = j.template.Execute(w, exec.NewContext(vars))
	switch {
	case refused != "":
		return "", &RefusedError{Reason: refused}
	case w.full:
		return "", fmt.Errorf("chat template: the prompt is longer than %d bytes", maxPrompt)
	case err != nil:
		return "", errors.New("chat template: " + shorten(err.Error()))
	}
	return w.String(), nil
}

// shorten cuts the middle out of a message of the library, which can repeat whole templates and conversations; its cause
// stands at the end.
func shorten(s string) string {
	const half = 150
	if len(s) <= 2*half {
		return s
	}
	return strings.ToValidUTF8(s[:half]+" ... "+s[len(s)-half:], "")
}

// limited is a buffer with an end.
type limited struct {
	bytes.Buffer
	full bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxPrompt {
		l.full = true
		return 0, io.ErrShortWrite
	}
	return l.Buffer.Write(p)
}

func (l *limited) WriteString(s string) (int, error) { return l.Write([]byte(s)) }

// templateName is how the library asks for the template itself.
const templateName = "chat_template"

// alone is a loader that knows one template and no files.
type alone struct{ source string }

func (a alone) Read(path string) (io.Reader, error) {
	if path != templateName {
		return nil, fmt.Errorf("a chat template stands alone: it cannot read %q", path)
	}
	return strings.NewReader(a.source), nil
}

func (a alone) Resolve(path string) (string, error) { return path, nil }

func (a alone) Inherit(string) (loaders.Loader, error) { return a, nil }

// rangeList is Python's range as a list. The library's own sends on a channel from a goroutine that stays behind when
// nobody reads on, and has no limit.
func rangeList(args *exec.VarArgs) (any, error) {
	n := []int{0, 0, 1}
	switch len(args.Args) {
	case 1:
		n[1] = args.Args[0].Integer()
	case 2, 3:
		for i, a := range args.Args {
			n[i] = a.Integer()
		}
	default:
		return nil, errors.New("range wants 1 to 3 integers")
	}
	for _, a := range args.Args {
		if !a.IsInteger() {
			return nil, fmt.Errorf("range wants integers, not %s", a.String())
		}
	}
	if n[2] == 0 {
		return nil, errors.New("range: the step is 0")
	}
	var out list
	for i := n[0]; n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]; i += n[2] {
		if len(out) == maxRange {
			return nil, fmt.Errorf("range is longer than %d", maxRange)
		}
		out = append(out, i)
	}
	if out == nil {
		out = list{}
	}
	return out, nil
}

// toJSON is Hugging Face's tojson: json.dumps(x, ensure_ascii=False, indent=…, separators=…, sort_keys=…).
func toJSON(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	s := style{item: ", ", key: ": "}
	indent := args.GetKeywordArgument("indent", nil)
	if len(args.Args) > 0 {
		indent = args.Args[0]
	}
	if indent.IsInteger() && indent.Integer() >= 0 && indent.Integer() <= 16 {
		s.indent, s.item = strings.Repeat(" ", indent.Integer()), ","
	}
	if sep := args.GetKeywordArgument("separators", nil); sep.IsList() && sep.Len() == 2 {
		s.item, s.key = sep.Index(0).String(), sep.Index(1).String()
	}
	s.sorted = args.GetKeywordArgument("sort_keys", false).IsTrue()
	var b strings.Builder
	if err := dumps(&b, in, s, ""); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(b.String())
}
