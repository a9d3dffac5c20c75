package render

import (
	"bytes"
	"testing"
)

// TestHarmless: whatever the pieces in which it comes, a terminal gets text and colours, and no commands.
func TestHarmless(t *testing.T) {
	for in, want := range map[string]string{
		"plain text\tand\r\nlines":                            "plain text\tand\r\nlines",
		"日本語 é ü":                                             "日本語 é ü",
		"\x1b[31mred\x1b[0m \x1b[1;38:5:9mx":                  "\x1b[31mred\x1b[0m \x1b[1;38:5:9mx",
		"a\x1b[2Jb\x1b[Hc":                                    "a[2Jb[Hc",
		"a\x1b]0;title\x07b":                                  "a]0;titleb",
		"a\u009b2Jb\u0085c":                                   "a2Jbc",
		"bell\a back\b del\x7f nul\x00 esc\x1b":               "bell back del nul esc",
		"\x1b\x1b[c\x1bP1$r\x1b\\":                            "[cP1$r\\",
		"\x1b[" + string(bytes.Repeat([]byte("1"), 40)) + "m": "[" + string(bytes.Repeat([]byte("1"), 40)) + "m",
	} {
		for size := 1; size <= len(in); size++ {
			var got bytes.Buffer
			h := &harmless{w: &got}
			for rest := []byte(in); len(rest) > 0; {
				piece := rest[:min(size, len(rest))]
				if n, err := h.Write(piece); n != len(piece) || err != nil {
					t.Fatal(n, err)
				}
				rest = rest[len(piece):]
			}
			if got.String() != want {
				t.Errorf("%q in pieces of %d: got %q, want %q", in, size, got.String(), want)
			}
		}
	}
}
