package render

import (
	"bytes"
	"io"
)

// Harmless returns w. If w is a terminal, it returns a writer to it that removes control sequences: output of models
// and model servers must not move the cursor, rename the window or answer for its reader. Colours, tabs and line ends
// pass.
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

// longestColour bounds a colour's sequence.
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

// sequence returns the length of the sequence at the beginning of b, and whether it may pass; whole is false if more of
// it may come.
func sequence(b []byte) (n int, pass, whole bool) {
	switch c := b[0]; {
	case c == '\n', c == '\t', c == '\r':
		return 1, true, true
	case c == 0x1b:
		return colour(b)
	case c < ' ', c == 0x7f:
		return 1, false, true
	case c == 0xc2: // U+0080 to U+009F are controls, too
		if len(b) == 1 {
			return 0, false, false
		}
		if b[1] >= 0x80 && b[1] <= 0x9f {
			return 2, false, true
		}
	}
	return 1, true, true
}

// colour is [sequence] for text that begins with an escape: only colours may pass (ECMA-48, SGR).
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
