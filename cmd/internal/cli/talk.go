package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// lineReader returns [io.EOF] when the user has left, and errInterrupted for Ctrl-C. more: the line continues the turn.
type lineReader interface {
	ReadLine(more bool) (string, error)
}

var errInterrupted = errors.New("interrupted")

const talkHelp = `  /set NAME VALUE   change a setting; /set lists them
  /clear            have the model forget what was said
  /?                this
  /bye              leave, as Ctrl-D does
  """               begin a turn of several lines, and end it
Ctrl-C ends an answer, then the conversation. All else is asked.`

func (c *conversation) talk(ctx context.Context, lines lineReader) error {
	// Between a line and its answer Ctrl-C is ignored.
	between := make(chan os.Signal, 1)
	signal.Notify(between, os.Interrupt)
	defer signal.Stop(between)
	for ctx.Err() == nil {
		text, quoted, err := readTurn(lines)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errInterrupted):
			return nil
		case err != nil:
			return fmt.Errorf("read the prompt: %w", err)
		case text == "":
			continue
		}
		if command, argument := slashed(text); command != "" && !quoted {
			if c.obey(command, argument) {
				return nil
			}
			continue
		}
		err = c.turn(ctx, text)
		var interrupted *ExitError // the user has read enough
		if err != nil && !errors.As(err, &interrupted) {
			fmt.Fprintln(c.errs, "rouse:", err)
		}
	}
	return nil
}

const quotes = `"""`

// readTurn reads a line, or lines between quotes, which Ctrl-C discards.
func readTurn(lines lineReader) (text string, quoted bool, err error) {
	line, err := lines.ReadLine(false)
	if err != nil {
		return "", false, err
	}
	if text, quoted = strings.CutPrefix(strings.TrimSpace(line), quotes); !quoted {
		return text, false, nil
	}
	for {
		if all, ended := strings.CutSuffix(strings.TrimRight(text, " "), quotes); ended {
			return strings.Trim(all, "\n"), true, nil
		}
		line, err := lines.ReadLine(true)
		if errors.Is(err, errInterrupted) {
			return "", true, nil
		}
		if err != nil {
			return "", true, err
		}
		text += "\n" + line
	}
}

// slashed splits "/set system Be brief.". A path is not a command.
func slashed(text string) (command, argument string) {
	first, rest, _ := strings.Cut(text, " ")
	if !strings.HasPrefix(first, "/") || strings.ContainsAny(first[1:], "/.\n") || first == "/" {
		return "", ""
	}
	return first, strings.TrimSpace(rest)
}

// obey reports whether the conversation ends.
func (c *conversation) obey(command, argument string) (ends bool) {
	switch command {
	case "/bye", "/exit", "/quit":
		return true
	case "/clear":
		c.messages = nil
	case "/?", "/help":
		fmt.Fprintln(c.errs, talkHelp)
	case "/set":
		if err := c.set(argument); err != nil {
			fmt.Fprintln(c.errs, "rouse:", err)
		}
	default:
		fmt.Fprintf(c.errs, "rouse: there is no command %.40s: /? lists them\n", command)
	}
	return false
}

func (c *conversation) settings() *pflag.FlagSet {
	s, o := pflag.NewFlagSet("/set", pflag.ContinueOnError), &c.options
	s.SortFlags = false
	s.StringVar(&o.system, "system", o.system, "the system message; none: ''")
	setting(s, &o.temperature, "temperature", "0 is greedy", number(2))
	setting(s, &o.topP, "top-p", "sample among the likeliest tokens of this share; 0: the model's own", number(1))
	setting(s, &o.seed, "seed", "the same answer each time for the same seed; 0: none", whole)
	setting(s, &o.maxTokens, "max-tokens", "most tokens of an answer; 0: the model's own limit", whole)
	stats := map[bool]string{true: "off", false: "on"}[c.quiet]
	s.Var(&parsed[bool]{&c.quiet, stats, isOff}, "stats", "on or off: what each answer took")
	return s
}

func setting[T any](s *pflag.FlagSet, to *T, name, usage string, parse func(string) (T, error)) {
	s.Var(&parsed[T]{to, fmt.Sprint(*to), parse}, name, usage)
}

func (c *conversation) set(argument string) error {
	name, value, _ := strings.Cut(argument, " ")
	all := c.settings()
	if name == "" {
		all.VisitAll(func(f *pflag.Flag) { fmt.Fprintf(c.errs, "  %-12s %-8s %s\n", f.Name, f.Value, f.Usage) })
		return nil
	}
	f := all.Lookup(strings.ReplaceAll(name, "_", "-"))
	if f == nil {
		return fmt.Errorf("there is no setting %.40s: /set lists them", name)
	}
	if err := f.Value.Set(unquoted(strings.TrimSpace(value))); err != nil {
		return fmt.Errorf("/set %s: %w", f.Name, err)
	}
	return nil
}

func unquoted(v string) string {
	if len(v) > 1 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0] {
		return v[1 : len(v)-1]
	}
	return v
}

func number(most float64) func(string) (float64, error) {
	return func(v string) (float64, error) {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(n >= 0 && n <= most) { // excludes NaN
			return 0, fmt.Errorf("want a number from 0 to %v", most)
		}
		return n, nil
	}
}

func whole(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, errors.New("want a number of at least 0")
	}
	return n, nil
}

func isOff(v string) (bool, error) {
	if v != "on" && v != "off" {
		return false, errors.New("want on or off")
	}
	return v == "off", nil
}
