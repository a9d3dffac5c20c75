package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rouse-dev/rouse/cmd/internal/render"
)

func runCommand() *cobra.Command {
	var o chatOptions
	var quiet bool
	cmd := &cobra.Command{
		Use:   "run NAME|MODEL [PROMPT …]",
		Short: "Ask a function, or a model, and stream its answer",
		Long: `Ask a function and stream its answer. A MODEL is a GGUF file, hf.co/ORG/NAME[:QUANT], or any other
reference that rouse up --model takes: it is declared first, fetched, and started. Where no server runs, one serves
for as long as the command takes.

Without a PROMPT it is read from standard
input; on a terminal that becomes a conversation, one line a turn, with a history of
lines (arrow keys); what is pasted is one turn, which Enter sends. Ctrl-C ends an answer; /bye, Ctrl-D, or Ctrl-C at the prompt ends
the conversation, /clear has the model forget what was said, and /? lists these.
What the answer took (hold, wake, first token, tokens per second) goes to standard error.`,
		Args: cobra.MinimumNArgs(1),
		Example: `  rouse run pico "echo hello world"
  rouse run ./qwen2.5-0.5b-instruct-q8_0.gguf "Say hello."
  rouse run hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0`,
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, door, name, end, err := dialFor(cmd, args[0])
			if err != nil {
				return err
			}
			defer end()
			o.model = name
			chat := &conversation{client: c, door: door, options: o, out: render.Harmless(cmd.OutOrStdout()), errs: cmd.ErrOrStderr(), quiet: quiet, progress: isTerminal(cmd.ErrOrStderr())}
			return chat.run(cmd.Context(), strings.Join(args[1:], " "), cmd.InOrStdin())
		},
	}
	s := cmd.Flags()
	s.IntVar(&o.maxTokens, "max-tokens", 0, "most tokens to generate (default: the model's own limit)")
	s.Float64Var(&o.temperature, "temperature", 0, "0 is greedy, and the same answer each time")
	s.StringVar(&o.system, "system", "", "system message")
	s.BoolVarP(&quiet, "quiet", "q", false, "print the answer only")
	return cmd
}

// conversation asks and prints, turn by turn.
type conversation struct {
	client    *client
	door      endpoint
	options   chatOptions
	out, errs io.Writer
	quiet     bool
	progress  bool // errs is a terminal, on which a line can be written again
	messages  []message
}

// isTerminal says whether w, or r, is a terminal.
func isTerminal(stream any) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// fitting is as much of text as one line of the terminal has room for, which can be written again.
func fitting(text string, terminal any) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
	if file, isFile := terminal.(*os.File); isFile {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && utf8.RuneCountInString(text) >= width {
			return string([]rune(text)[:max(0, width-2)]) + "…"
		}
	}
	return text
}

func (c *conversation) run(ctx context.Context, prompt string, in io.Reader) error {
	if c.options.system != "" {
		c.messages = append(c.messages, message{"system", c.options.system})
	}
	if prompt != "" {
		return c.turn(ctx, prompt)
	}
	if !isTerminal(in) {
		all, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		if prompt = strings.TrimSpace(string(all)); prompt == "" {
			return errors.New("no prompt: give one as an argument or on standard input")
		}
		return c.turn(ctx, prompt)
	}
	return c.talk(ctx, newEditor(in.(*os.File), c.errs))
}

// lineReader gives one line of a person after the other, and [io.EOF] when the person has left.
type lineReader interface{ ReadLine() (string, error) }

// talk takes turns until the person leaves.
func (c *conversation) talk(ctx context.Context, lines lineReader) error {
	said := len(c.messages) // the system message
	for ctx.Err() == nil {
		line, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		switch line = strings.TrimSpace(line); line {
		case "":
			continue
		case "/bye", "/exit":
			return nil
		case "/clear":
			c.messages = c.messages[:said]
			continue
		case "/?", "/help":
			fmt.Fprintln(c.errs, "/clear has the model forget what was said; /bye or Ctrl-D ends the conversation; Ctrl-C ends an answer. All else is asked.")
			continue
		}
		err = c.turn(ctx, line)
		var interrupted *ExitError // the person has read enough
		if err != nil && !errors.As(err, &interrupted) {
			fmt.Fprintln(c.errs, "rouse:", err)
		}
	}
	return nil
}

// turn asks one question and prints the answer as it comes. Ctrl-C ends it with an [ExitError]; what was
// said until then counts.
func (c *conversation) turn(ctx context.Context, prompt string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	messages := append(c.messages, message{"user", prompt})
	var answer strings.Builder
	waits := false
	m, err := c.client.chat(ctx, c.door, c.options, messages, chatEvents{
		comment: func(text string) {
			switch text = strings.TrimPrefix(text, "rouse "); {
			case c.quiet || !strings.Contains(text, "stage="):
			case c.progress:
				waits = true
				fmt.Fprintf(c.errs, "\r\x1b[K%s", fitting(text, c.errs))
			default:
				fmt.Fprintln(c.errs, text)
			}
		},
		text: func(s string) {
			if waits {
				fmt.Fprint(c.errs, "\r\x1b[K")
				waits = false
			}
			answer.WriteString(s)
			fmt.Fprint(c.out, s)
		},
	})
	if waits {
		fmt.Fprint(c.errs, "\r\x1b[K")
	}
	if answer.Len() > 0 {
		fmt.Fprintln(c.out)
	}
	cut := err != nil && ctx.Err() != nil
	if err != nil && !cut {
		return c.client.explained(ctx, functionOf(c.options.model), err)
	}
	if answer.Len() > 0 {
		c.messages = append(messages, message{"assistant", answer.String()})
	}
	if cut {
		return &ExitError{130}
	}
	if !c.quiet {
		fmt.Fprintln(c.errs, m.line())
	}
	return nil
}

// rateTokens is the length from which an answer's rate says something.
const rateTokens = 8

// line says what an answer took.
func (m measured) line() string {
	var parts []string
	for _, p := range []struct {
		name string
		d    time.Duration
	}{{"hold", m.hold}, {"wake", m.wake}, {"queue", m.queue}} {
		if p.d > 0 {
			parts = append(parts, p.name+" "+render.Rounded(p.d).String())
		}
	}
	parts = append(parts, "first token "+render.Rounded(m.firstToken).String())
	if m.tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens", m.tokens))
	}
	if rate := m.rate(); m.tokens >= rateTokens && rate > 0 {
		parts = append(parts, fmt.Sprintf("%.0f tokens/s", rate))
	}
	return "[" + strings.Join(parts, " · ") + "]"
}
