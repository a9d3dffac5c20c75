// Package render formats answers of the administrative API for people, and as JSON or YAML, for rouse and kn-rouse.
package render

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// Flag adds --output to a command. The default formats are text, json and yaml.
func Flag(cmd *cobra.Command, formats ...string) {
	if formats == nil {
		formats = []string{"text", "json", "yaml"}
	}
	cmd.Flags().StringP("output", "o", "text", "`format`: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
}

// Explain makes every command below root print its usage when its arguments are wrong, and suggest similar flags.
func Explain(root *cobra.Command) {
	if !root.HasParent() {
		root.SetFlagErrorFunc(MeantFlag)
	}
	for _, c := range root.Commands() {
		Explain(c)
		check := c.Args
		if check == nil {
			continue
		}
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			switch {
			case err == nil:
				return nil
			case c.HasAvailableSubCommands():
				return fmt.Errorf("%w: see %s --help", err, c.CommandPath())
			}
			return fmt.Errorf("%w: want %s", err, c.UseLine())
		}
	}
}

// MeantFlag says which flag has an invalid value, or which may be meant by an unknown one.
func MeantFlag(cmd *cobra.Command, err error) error {
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		err = errors.Unwrap(invalid)
		if n := (*strconv.NumError)(nil); errors.As(err, &n) {
			err = errors.New("want " + cmp.Or(map[string]string{"ParseBool": "true or false", "ParseFloat": "a number such as 2.5"}[n.Func], "a whole number such as 10"))
		}
		return fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), err)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var all []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, f.Name)
		}
	})
	name := unknown.GetSpecifiedName()
	if meant := names.Nearest(name, len(name)/2+1, all...); meant != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, meant)
	}
	return err
}

// Print writes v in the requested format; text writes it for people. Durations are texts such as "1m30s".
func Print[T any](cmd *cobra.Command, v T, text func(io.Writer, T) error) error {
	format, _ := cmd.Flags().GetString("output")
	w := cmd.OutOrStdout()
	switch format {
	case "text":
		return text(Harmless(w), v)
	case "json":
		raw, err := json.Marshal(v, readable, jsontext.WithIndent("  "))
		if err != nil {
			return err
		}
		_, err = w.Write(append(raw, '\n'))
		return err
	case "yaml":
		return YAML(w, v)
	}
	return fmt.Errorf("--output %q: want text, json or yaml", format)
}

// readable makes durations texts; all else is as encoding/json writes it.
var readable = json.JoinOptions(jsonv1.DefaultOptionsV1(), json.WithMarshalers(json.MarshalToFunc(func(enc *jsontext.Encoder, d time.Duration) error {
	return enc.WriteToken(jsontext.String(d.String()))
})))

// YAML writes v with its JSON names.
func YAML(w io.Writer, v any) error {
	raw, err := json.Marshal(v, readable)
	if err != nil {
		return err
	}
	var node yaml.Node // JSON is YAML; a node keeps the order of keys, and numbers
	if err := yaml.Unmarshal(raw, &node); err != nil {
		return err
	}
	blockStyle(&node)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return err
	}
	return enc.Close()
}

func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// Rows are the cells of a table.
type Rows [][]any

// Add adds a row.
func (r *Rows) Add(cells ...any) { *r = append(*r, cells) }

func (r *Rows) say(label, text string) {
	if text != "" {
		r.Add(label, text)
	}
}

// narrowest are the widths to which columns may be cut. Tenants of one issuer have a common prefix.
var narrowest = map[string]int{"KEY": 11, "FUNCTION": 11}

// Table writes rows in columns. The first one has their names.
func Table[T any](w io.Writer, rows [][]T) error {
	return table(w, screen{width: screenOf(w).width}, rows)
}

func table[T any](w io.Writer, s screen, rows [][]T) error {
	texts, columns := make([][]string, len(rows)), []column{}
	for k, row := range rows {
		for _, cell := range row {
			text := fmt.Sprint(cell)
			if texts[k] = append(texts[k], text); k == 0 {
				columns = append(columns, column{least: narrowest[text]})
			}
		}
	}
	return grid(w, s, columns, "   ", texts)
}

type screen struct {
	width  int // 0: it is no terminal, and lines are not cut
	colour bool
}

// screenOf obeys https://no-color.org.
func screenOf(w io.Writer) screen {
	if h, is := w.(*harmless); is {
		w = h.w
	}
	if !IsTerminal(w) {
		return screen{}
	}
	s := screen{width: usualWidth, colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(w.(*os.File).Fd())); err == nil && width > 0 {
		s.width = width
	}
	return s
}

const usualWidth = 80

// stateColours are for [Summary]'s words: serving, resting, changing, failed.
var stateColours = map[string]string{
	string(api.Awake): "32", string(api.Asleep): "36",
	string(api.Starting): "33", string(api.Draining): "33",
	string(api.Unhealthy): "31", "failed": "31",
	Word(api.Gone): "2",
}

// paint writes ECMA-48.
func (s screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// Harmless returns w, or for a terminal a writer that removes control sequences but colours: output of models must not
// move the cursor, rename the window or answer for its reader.
func Harmless(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return &harmless{w: w}
	}
	return w
}

// harmless is not safe for concurrent use.
type harmless struct {
	w    io.Writer
	held []byte // the beginning of an incomplete sequence
}

const longestColour = 32

func (h *harmless) Write(p []byte) (int, error) {
	in := append(h.held, p...)
	out := make([]byte, 0, len(in))
	h.held = nil
	for len(in) > 0 {
		n, pass, whole := sequence(in)
		if !whole {
			h.held = bytes.Clone(in)
			break
		}
		if pass {
			out = append(out, in[:n]...)
		}
		in = in[n:]
	}
	if _, err := h.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// sequence returns the length of the sequence at the beginning of b, and whether it may pass; whole is false if more
// may come.
func sequence(b []byte) (n int, pass, whole bool) {
	switch c := b[0]; {
	case c == '\n', c == '\t', c == '\r':
		return 1, true, true
	case c == 0x1b:
		return colour(b)
	case c < ' ', c == 0x7f:
		return 1, false, true
	case c == 0xc2: // U+0080 to U+009F are controls
		if len(b) == 1 {
			return 0, false, false
		}
		if b[1] >= 0x80 && b[1] <= 0x9f {
			return 2, false, true
		}
	}
	return 1, true, true
}

// colour is [sequence] after an escape: only colours may pass (ECMA-48, SGR).
func colour(b []byte) (n int, pass, whole bool) {
	for i := 1; i < min(len(b), longestColour); i++ {
		switch c := b[i]; {
		case i == 1 && c == '[', i > 1 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 1 && c == 'm':
			return i + 1, true, true
		default:
			return 1, false, true
		}
	}
	return 1, false, len(b) >= longestColour
}
