package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// TestNFC checks that a text has the tokens of its composed form if the file or the pre-tokenizer says so. Control
// tokens are found before normalization.
func TestNFC(t *testing.T) {
	var file struct{ Vocab tokenizer.Vocab }
	readJSON(t, "vocab-bpe.json", &file)
	yes, no := true, false
	for _, tc := range []struct {
		pre  string
		says *bool // the file
		nfc  bool
	}{{"qwen2", nil, true}, {"command-r", nil, true}, {"gpt-2", nil, false}, {"gpt-2", &yes, true}, {"qwen2", &no, false}, {"deepseek-v3", nil, false}} {
		v := file.Vocab
		v.Pre, v.NFC = tc.pre, tc.says
		tok := build(t, v)
		for _, text := range []string{"e\u0301 caf\u00e9", "A\u030angstro\u0308m <|im_start|>\u1112\u1161\u11ab", "plain"} {
			want := text
			if tc.nfc {
				want = norm.NFC.String(text)
			}
			got := tok.Encode(text, true)
			if back := tok.Decode(got); back != strings.ReplaceAll(want, "<|im_start|>", "") || !slices.Equal(got, tok.Encode(want, true)) {
				t.Errorf("%s (the file says %v): %q comes back as %q, want %q", tc.pre, tc.says, text, back, want)
			}
		}
	}
}

// TestNormalizerOfTheFile checks that a whole tokenizer.json in the file takes precedence over the pre-tokenizer's name.
func TestNormalizerOfTheFile(t *testing.T) {
	for said, nfc := range map[string]bool{
		`{"normalizer":{"type":"NFC"}}`: true, `{"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]}}`: true,
		`{"normalizer":{"type":"Sequence","normalizers":[]}}`: false, `{"normalizer":null}`: false,
	} {
		v, err := tokenizer.ReadVocab(file(t, "gpt2", map[string]any{"tokenizer.ggml.pre": "qwen2", "tokenizer.huggingface.json": said}))
		if err != nil || v.NFC == nil || *v.NFC != nfc {
			t.Errorf("%s: %v, %v; want %v", said, v.NFC, err, nfc)
		}
	}
	if v, err := tokenizer.ReadVocab(file(t, "gpt2", nil)); err != nil || v.NFC != nil {
		t.Errorf("a file that says nothing: %v, %v", v.NFC, err)
	}
}

// TestWordPiece compares with Hugging Face's WordPiece; engine/golden/wordpiece.mjs writes the file.
func TestWordPiece(t *testing.T) {
	var golden map[string]struct {
		Tokens []string
		Cases  []struct {
			Text string
			IDs  []int32
		}
	}
	readJSON(t, "wordpiece.json", &golden)
	for name, g := range golden {
		if len(g.Cases) < 500 {
			t.Errorf("%s: %d cases", name, len(g.Cases))
		}
		v, err := tokenizer.ReadVocab(file(t, "bert", map[string]any{
			"tokenizer.ggml.tokens": g.Tokens, "tokenizer.ggml.token_type": types(g.Tokens), "tokenizer.ggml.eos_token_id": nil, "tokenizer.ggml.scores": nil,
		}))
		if err != nil {
			t.Fatal(err)
		}
		tok := build(t, v)
		for _, c := range g.Cases {
			if got := tok.Encode(c.Text, false); !slices.Equal(got, c.IDs) {
				t.Errorf("%s: %q:\n got %q\nwant %q", name, c.Text, texts(tok, got), texts(tok, c.IDs))
			}
		}
		bos, addBOS := tok.BOS()
		end, addEnd := tok.End()
		if !addBOS || tok.Token(bos) != "[CLS]" || !addEnd || tok.Token(end) != "[SEP]" {
			t.Errorf("%s: a text is put between %q (%v) and %q (%v)", name, tok.Token(bos), addBOS, tok.Token(end), addEnd)
		}
		if got := tok.Decode(tok.Encode("hello worlds", false)); got != "hello worlds" {
			t.Errorf("%s: two words come back as %q", name, got)
		}
	}
}

// wordPieces returns a tokenizer of the golden file's vocabulary.
func wordPieces(t testing.TB) *tokenizer.Tokenizer {
	var golden map[string]struct{ Tokens []string }
	readJSON(t, "wordpiece.json", &golden)
	tokens := golden["uncased"].Tokens
	tok, err := tokenizer.FromGGUF(file(t, "bert", map[string]any{
		"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types(tokens), "tokenizer.ggml.eos_token_id": nil, "tokenizer.ggml.scores": nil,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// types returns types as converters write them: tokens in brackets are not text.
func types(tokens []string) []int32 {
	out := make([]int32, len(tokens))
	for i, text := range tokens {
		out[i] = int32(tokenizer.Normal)
		if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") && len(text) > 1 {
			out[i] = int32(tokenizer.Control)
		}
	}
	return out
}

// TestClosingToken checks that a whole text ends with the file's closing token.
func TestClosingToken(t *testing.T) {
	for _, tc := range []struct {
		says any
		add  bool
	}{{true, true}, {false, false}, {nil, false}} {
		tok, err := tokenizer.FromGGUF(file(t, "llama", map[string]any{"tokenizer.ggml.add_eos_token": tc.says}))
		if err != nil {
			t.Fatal(err)
		}
		if id, add := tok.End(); id != 2 || add != tc.add {
			t.Errorf("add_eos_token %v: the end is %d (%v), want 2 (%v)", tc.says, id, add, tc.add)
		}
	}
}

// FuzzWordPiece checks that text makes no control token but the unknown one, and that Decode returns valid text.
func FuzzWordPiece(f *testing.F) {
	tok := wordPieces(f)
	for _, text := range []string{"", "[CLS] a [SEP]", "\xff\u0301e\u0301\u200d", "İ 世x", strings.Repeat("a", 101)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text, false)
		for _, id := range ids {
			if kind := tok.Type(id); kind == 0 || kind == tokenizer.Control && tok.Token(id) != "[UNK]" {
				t.Fatalf("%q gives id %d %q", text, id, tok.Token(id))
			}
		}
		checkStream(t, tok, ids)
		if back := tok.Decode(ids); !utf8.ValidString(back) {
			t.Fatalf("%q comes back as %q", text, back)
		}
	})
}
