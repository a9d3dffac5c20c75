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

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

type conversation struct {
	client    *client
	door      endpoint
	options   chatOptions
	out, errs io.Writer
	quiet     bool
	bar       *waitBar  // nil: no terminal
	history   string    // of typed lines; empty: none
	messages  []message // without the system message
	meant     error     // if no model has the name; may be nil
}

func (c *conversation) run(ctx context.Context, prompt string, in io.Reader) error {
	if prompt != "" {
		return c.turn(ctx, prompt)
	}
	if !render.IsTerminal(in) {
		all, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		if prompt = strings.TrimSpace(string(all)); prompt == "" {
			return errors.New("no prompt: give one as an argument or on standard input")
		}
		return c.turn(ctx, prompt)
	}
	typed := newTyped(c.history)
	defer func() {
		if err := typed.close(); err != nil {
			fmt.Fprintln(c.errs, "rouse: the history is not kept:", err)
		}
	}()
	return c.talk(ctx, newEditor(in.(*os.File), c.errs, typed))
}

func (c *conversation) asked(prompt string) []message {
	var all []message
	if c.options.system != "" {
		all = append(all, message{"system", c.options.system})
	}
	return append(append(all, c.messages...), message{"user", prompt})
}

// turn asks one question. Ctrl-C ends it with an [ExitError]; the partial answer is kept.
func (c *conversation) turn(ctx context.Context, prompt string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	defer c.clear()
	var answer strings.Builder
	var unwritten error
	m, err := c.client.chat(ctx, c.door, c.options, c.asked(prompt), chatEvents{
		comment: c.waits,
		text: func(s string) {
			c.clear()
			answer.WriteString(s)
			if _, err := fmt.Fprint(c.out, s); err != nil && unwritten == nil {
				unwritten = err
				stop()
			}
		},
	})
	c.clear()
	if unwritten != nil {
		return fmt.Errorf("print the answer: %w", unwritten)
	}
	if answer.Len() > 0 {
		fmt.Fprintln(c.out)
	}
	cut := err != nil && ctx.Err() != nil
	if err != nil && !cut {
		var refused *api.Error
		if c.meant != nil && errors.As(err, &refused) && refused.Code == api.CodeModelNotFound && !strings.Contains(err.Error(), "did you mean") {
			return c.meant
		}
		return c.client.explained(ctx, c.options.model, err)
	}
	if answer.Len() > 0 {
		c.messages = append(c.messages, message{"user", prompt}, message{"assistant", answer.String()})
	}
	if cut {
		return &ExitError{130}
	}
	if answer.Len() == 0 {
		fmt.Fprintln(c.errs, "rouse: the answer has no text: a model that was not made for chats completes texts, at /v1/completions")
	}
	if !c.quiet {
		fmt.Fprintln(c.errs, m.line())
	}
	return nil
}

// rateTokens make a rate meaningful.
const rateTokens = 8

func (m measured) line() string {
	var parts []string
	if m.fallback != "" {
		parts = append(parts, "answered by "+m.fallback)
	}
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
