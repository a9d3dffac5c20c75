package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// editor leaves the terminal in its original mode between lines: Ctrl-C is a signal then.
type editor struct {
	in   *os.File
	out  io.Writer
	keys *keys
	line *term.Terminal
	past term.History
}

type keys struct {
	io.Reader
	interrupted bool // by Ctrl-C, at the last read
}

const ctrlC = 3

func (k *keys) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	k.interrupted = bytes.IndexByte(p[:n], ctrlC) >= 0
	return n, err
}

func newEditor(in *os.File, out io.Writer, history term.History) *editor {
	e := &editor{in: in, out: out, keys: &keys{Reader: in}, past: history}
	e.renew()
	return e
}

// renew discards unread input: a terminal would read the key that ended it again.
func (e *editor) renew() {
	e.line = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.keys, e.out}, prompt)
	e.line.History = e.past
}

// ReadLine returns the next line, or what was pasted; [io.EOF] after Ctrl-D, errInterrupted after Ctrl-C. goesOn: it continues the turn.
func (e *editor) ReadLine(goesOn bool) (string, error) {
	fd := int(e.in.Fd())
	if width, height, err := term.GetSize(fd); err == nil && width > 0 {
		_ = e.line.SetSize(width, height) // only its drawing could fail
	}
	before, err := term.MakeRaw(fd)
	if err != nil {
		return "", fmt.Errorf("edit a line: %w", err)
	}
	e.line.SetBracketedPasteMode(true)
	first := prompt
	if goesOn {
		first = more
	}
	line, err := pasted(e.line, first)
	e.line.SetBracketedPasteMode(false)
	if failed := term.Restore(fd, before); failed != nil {
		return "", errors.Join(err, failed)
	}
	if errors.Is(err, io.EOF) {
		fmt.Fprintln(e.out)
		e.renew()
		if e.keys.interrupted {
			return "", errInterrupted
		}
	}
	return line, err
}

// Prompts of a line, and of pasted or quoted ones after it.
const (
	prompt = "> "
	more   = "… "
)

// pasted returns a typed line, with the pasted ones before it.
func pasted(lines *term.Terminal, first string) (string, error) {
	lines.SetPrompt(first)
	for text := ""; ; {
		line, err := lines.ReadLine()
		if text += line; !errors.Is(err, term.ErrPasteIndicator) {
			return text, err
		}
		text += "\n"
		lines.SetPrompt(more)
	}
}
