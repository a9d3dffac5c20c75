package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rouse-dev/rouse/internal/view"
)

func runCommand() *cobra.Command {
	var o chatOptions
	var quiet bool
	cmd := &cobra.Command{
		Use:   "run NAME [PROMPT …]",
		Short: "Ask a function and stream its answer",
		Long: `Ask a function and stream its answer. Without a PROMPT it is read from standard
input; on a terminal that becomes a conversation, one line a turn, until Ctrl-D.
What the answer took (hold, wake, first token, tokens per second) goes to standard error.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, door, err := dialDoor(cmd)
			if err != nil {
				return err
			}
			o.model = args[0]
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			chat := &conversation{client: c, door: door, options: o, out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), quiet: quiet}
			return chat.run(ctx, strings.Join(args[1:], " "), cmd.InOrStdin())
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
	messages  []message
}

func (c *conversation) run(ctx context.Context, prompt string, in io.Reader) error {
	if c.options.system != "" {
		c.messages = append(c.messages, message{"system", c.options.system})
	}
	if prompt != "" {
		return c.turn(ctx, prompt)
	}
	if file, isFile := in.(*os.File); !isFile || !term.IsTerminal(int(file.Fd())) {
		all, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		if prompt = strings.TrimSpace(string(all)); prompt == "" {
			return errors.New("no prompt: give one as an argument or on standard input")
		}
		return c.turn(ctx, prompt)
	}
	lines := bufio.NewScanner(in)
	for fmt.Fprint(c.errs, "> "); lines.Scan(); fmt.Fprint(c.errs, "> ") {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if err := c.turn(ctx, lines.Text()); err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Fprintln(c.errs, "rouse:", err)
		}
	}
	fmt.Fprintln(c.errs)
	return lines.Err()
}

// turn asks one question and prints the answer as it comes.
func (c *conversation) turn(ctx context.Context, prompt string) error {
	messages := append(c.messages, message{"user", prompt})
	var answer strings.Builder
	waits := false
	m, err := c.client.chat(ctx, c.door, c.options, messages, chatEvents{
		comment: func(text string) {
			if !c.quiet && strings.Contains(text, "stage=") {
				waits = true
				fmt.Fprintf(c.errs, "\r\x1b[K%s", strings.TrimPrefix(text, "rouse "))
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
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return &ExitError{130}
		}
		return err
	}
	c.messages = append(messages, message{"assistant", answer.String()})
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
			parts = append(parts, p.name+" "+view.Rounded(p.d).String())
		}
	}
	parts = append(parts, "first token "+view.Rounded(m.firstToken).String())
	if m.tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens", m.tokens))
	}
	if rate := m.rate(); m.tokens >= rateTokens {
		parts = append(parts, fmt.Sprintf("%.0f tokens/s", rate))
	}
	return "[" + strings.Join(parts, " · ") + "]"
}
