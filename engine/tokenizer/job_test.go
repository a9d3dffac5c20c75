package tokenizer_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// kinds are tokenizers of each kind of vocabulary.
func kinds(t *testing.T) map[string]*tokenizer.Tokenizer {
	t.Helper()
	files, err := filepath.Glob("testdata/golden-*.json")
	if err != nil || len(files) < 12 {
		t.Fatalf("found %d golden files, %v", len(files), err)
	}
	all := map[string]*tokenizer.Tokenizer{}
	for _, file := range files {
		var g golden
		readJSON(t, filepath.Base(file), &g)
		all[file] = g.open(t)
	}
	for _, pre := range []string{"default", "command-r", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon"} {
		v := byteVocab(pre, "a|a", "aa|aa", " | ")
		v.AddBOS = new(bool)
		all[pre] = build(t, v)
	}
	all["WordPiece"] = build(t, tokenizer.Vocab{
		Model: "bert", Tokens: []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁a", "a", "aa", "▁.", "▁1", "▁'"},
		BOS: 2, EOS: tokenizer.None, EOT: tokenizer.None, EOM: tokenizer.None, Unknown: 1, Sep: 3,
	})
	return all
}

// TestEncodeWithin checks that a limit of the text's number of tokens gives Encode's ids, and one less gives ErrTooMany.
func TestEncodeWithin(t *testing.T) {
	text := "Hello, world! 12345 aaaaaaaaaa é e\u0301 漢字 \U0001f600\n\n  it's  " + strings.Repeat("word ", 99) + "\xff."
	for name, tok := range kinds(t) {
		want := tok.Encode(text, true)
		for most, ok := range map[int]bool{math.MaxInt: true, len(want): true, len(want) - 1: false, 3: false, 0: false} {
			got, err := tok.EncodeWithin(t.Context(), text, true, most)
			if ok && (err != nil || !slices.Equal(got, want)) || !ok && !errors.Is(err, tokenizer.ErrTooMany) {
				t.Errorf("%s, at most %d: got %v, %v, want %v", name, most, got, err, want)
			}
		}
	}
}

// long are texts that are easy to make slow.
var long = []string{"a", " ", "\n", "1", "'", ".", "é", "漢", "\u0301", "a ", " \n", "'s", "Aa", "a1", "  漢", "\r\n", "\U0001f389", "\xff"}

// TestLongTexts checks that any long text is encoded in linear time (in quadratic time this test takes minutes).
func TestLongTexts(t *testing.T) {
	for name, tok := range kinds(t) {
		for _, part := range long {
			if ids := tok.Encode("x"+strings.Repeat(part, 1<<16/len(part))+"x", true); len(ids) == 0 {
				t.Errorf("%s: %q has no tokens", name, part)
			}
		}
	}
}

// TestTooMany checks that a text that is far too long is refused without the memory that its tokens would take.
func TestTooMany(t *testing.T) {
	for name, tok := range kinds(t) {
		if name == "WordPiece" { // a word is one token, however long
			continue
		}
		for _, part := range []string{"a", "a ", "."} {
			text := strings.Repeat(part, 4<<20/len(part))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := tok.EncodeWithin(t.Context(), text, true, 1000)
			runtime.ReadMemStats(&after)
			if made := (after.TotalAlloc - before.TotalAlloc) >> 20; !errors.Is(err, tokenizer.ErrTooMany) || made > 8 {
				t.Errorf("%s: 4 MiB of %q: %v, with %d MiB", name, part, err, made)
			}
		}
	}
}

// TestLeft checks that the text of a client that left is not encoded.
func TestLeft(t *testing.T) {
	gone := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for name, tok := range kinds(t) {
		for _, part := range long {
			if _, err := tok.EncodeWithin(ctx, strings.Repeat(part, 1<<17), true, math.MaxInt); !errors.Is(err, gone) {
				t.Errorf("%s: of %q: %v", name, part, err)
			}
		}
	}
}

// TestWordPiecePortions checks that a long text, which is read in portions, has the tokens of its words.
func TestWordPiecePortions(t *testing.T) {
	tok := kinds(t)["WordPiece"]
	r := rand.New(rand.NewPCG(3, 4))
	parts := []string{"a", "aa", "a\u0301", "\u0301", "A", ".", ",", "'", "1", "漢", "\u200b", "é", "\u2028"}
	for range 20 {
		var words []string
		var want []int32
		for size := 0; size < 50_000; {
			var b strings.Builder
			for range 1 + r.IntN(1+r.IntN(300)) {
				b.WriteString(parts[r.IntN(len(parts))])
			}
			words = append(words, b.String())
			want = append(want, tok.Encode(b.String(), true)...)
			size += b.Len() + 1
		}
		if got := tok.Encode(strings.Join(words, " "), true); !slices.Equal(got, want) {
			t.Fatalf("%d tokens, want the %d of the words", len(got), len(want))
		}
	}
}
