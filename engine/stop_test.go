package engine

import (
	"strings"
	"testing"
)

// FuzzStopper compares the stopper with one that sees the whole text, byte by byte.
func FuzzStopper(f *testing.F) {
	f.Add("one two three", "two", "thr", 3, false)
	f.Add("aaaaab", "aab", "ab", 1, true)
	f.Add("abcabd", "abd", "", 2, false)
	f.Add("xENENDx", "END", "EN!", 2, false)
	f.Fuzz(func(t *testing.T, text, one, two string, size int, keep bool) {
		size = 1 + int(uint(size)%7)
		var stops []string
		for _, s := range []string{one, two} {
			if s != "" {
				stops = append(stops, s)
			}
		}
		s := newStopper(stops, keep)
		var got strings.Builder
		found := false
		for rest := text; rest != "" && !found; {
			n := min(size, len(rest))
			var out string
			out, found = s.write(rest[:n])
			rest = rest[n:]
			got.WriteString(out)
			if sent := got.String(); !found && len(stops) > 0 && len(text)-len(rest)-len(sent) > s.longer {
				t.Fatalf("%d bytes are held back, at most %d may matter", len(text)-len(rest)-len(sent), s.longer)
			}
		}
		if !found {
			got.WriteString(s.flush())
		}
		want, wantFound := wholeText(text, stops, keep)
		if found != wantFound || got.String() != want {
			t.Errorf("%q until %q: got %q, %v; want %q, %v", text, stops, got.String(), found, want, wantFound)
		}
	})
}

// wholeText cuts text at the first byte after which it ends with a stop string.
func wholeText(text string, stops []string, keep bool) (string, bool) {
	for end := range len(text) + 1 {
		longest := ""
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) && len(s) > len(longest) {
				longest = s
			}
		}
		if longest != "" && !keep {
			return text[:end-len(longest)], true
		}
		if longest != "" {
			return text[:end], true
		}
	}
	return text, false
}
