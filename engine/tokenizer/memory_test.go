//go:build !race

package tokenizer_test

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestMemoryOfText checks that encoding allocates no more than the bound of all texts together, even for memory that
// is freed meanwhile. It is not built with the race detector, under which a sync.Pool drops items at random.
func TestMemoryOfText(t *testing.T) {
	parts := append([]string{"ab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab ", "\U0001d160", "\u1100\u1161\u11a8", "▁"}, long...)
	all := kinds(t)
	for _, name := range []string{"testdata/golden-gpt-2.json", "testdata/golden-spm.json", "testdata/golden-gemma.json", "testdata/golden-gemma4.json", "command-r", "WordPiece"} {
		tok := all[name]
		for _, part := range parts {
			text := strings.Repeat(part, 1<<18/len(part))
			if part == "\xff" { // no JSON contains it
				continue
			}
			runtime.GC()
			runtime.GC() // pools are empty after two
			most := tok.Bytes(text) * tokenizer.TextBytes
			got := allocated(func() { _, _ = tok.EncodeWithin(t.Context(), text, true, math.MaxInt) })
			if got > most+1<<16 {
				t.Errorf("%s: %q takes %d bytes for each byte, want at most %d", name, part, got/len(text), most/len(text))
			}
		}
	}
	if most := tokenizer.MostMemory(); most > 450<<20 {
		t.Errorf("all texts together may take %d MiB, want at most 450", most>>20)
	}
}
