package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// editor reads lines from a terminal, with editing and a history. Between two lines the terminal is as it
// was, so that Ctrl-C is a signal again.
type editor struct {
	in   *os.File
	out  io.Writer
	line *term.Terminal
}

func newEditor(in *os.File, out io.Writer) *editor {
	return &editor{in: in, out: out, line: term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, out}, prompt)}
}

// ReadLine returns the next line, or what was pasted and then sent with Enter; [io.EOF] after Ctrl-D or Ctrl-C.
func (e *editor) ReadLine() (string, error) {
	fd := int(e.in.Fd())
	if width, height, err := term.GetSize(fd); err == nil && width > 0 {
		_ = e.line.SetSize(width, height) // only what it draws could fail
	}
	before, err := term.MakeRaw(fd)
	if err != nil {
		return "", fmt.Errorf("edit a line: %w", err)
	}
	e.line.SetBracketedPasteMode(true)
	line, err := pasted(e.line)
	e.line.SetBracketedPasteMode(false)
	if failed := term.Restore(fd, before); failed != nil {
		return "", errors.Join(err, failed)
	}
	if errors.Is(err, io.EOF) {
		fmt.Fprintln(e.out)
	}
	return line, err
}

// prompts of a line, and of those that follow what was pasted.
const (
	prompt = "> "
	more   = "… "
)

// pasted reads a line that was typed, with the lines before it that were pasted whole.
func pasted(lines *term.Terminal) (string, error) {
	defer lines.SetPrompt(prompt)
	for text := ""; ; {
		line, err := lines.ReadLine()
		if text += line; !errors.Is(err, term.ErrPasteIndicator) {
			return text, err
		}
		text += "\n"
		lines.SetPrompt(more)
	}
}
