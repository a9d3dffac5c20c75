package tokenizer_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// byteVocab returns a byte-level vocabulary of the 256 bytes, the given merges in raw text ("left|right"), and specials.
func byteVocab(pre string, merges ...string) tokenizer.Vocab {
	v := tokenizer.Vocab{
		Model: "gpt2", Pre: pre, Merges: []string{},
		BOS: tokenizer.None, EOS: tokenizer.None, EOT: tokenizer.None, EOM: tokenizer.None, Unknown: tokenizer.None,
	}
	add := func(text string, kind tokenizer.Type) {
		v.Tokens, v.Types = append(v.Tokens, text), append(v.Types, kind)
	}
	for b := range 256 {
		add(tokenizer.ByteText(string([]byte{byte(b)})), tokenizer.Normal)
	}
	for _, m := range merges {
		l, r, _ := strings.Cut(m, "|")
		l, r = tokenizer.ByteText(l), tokenizer.ByteText(r)
		v.Merges = append(v.Merges, l+" "+r)
		add(l+r, tokenizer.Normal)
	}
	v.EOS = int32(len(v.Tokens))
	add("<|im_end|>", tokenizer.Control)
	add("<|im_start|>", tokenizer.Control)
	add("<tool>", tokenizer.UserDefined)
	return v
}

func build(t testing.TB, v tokenizer.Vocab) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// texts returns the tokens of ids as in the vocabulary.
func texts(tok *tokenizer.Tokenizer, ids []int32) []string {
	var out []string
	for _, id := range ids {
		out = append(out, tok.Token(id))
	}
	return out
}

func TestMergeOrder(t *testing.T) {
	tok := build(t, byteVocab("gpt-2", "b|c", "a|b", "a|bc", "ab|c", "a|a"))
	for text, want := range map[string][]string{
		"abc":  {"abc"},     // b|c ranks before a|b, then a|bc
		"ab":   {"ab"},      //
		"aaa":  {"aa", "a"}, // of the same rank the leftmost
		"aaab": {"aa", "ab"},
		"aabc": {"a", "abc"},
	} {
		if diff := cmp.Diff(want, texts(tok, tok.Encode(text, false))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// TestMergeOfUnknown checks that a byte without a token is merged like the unknown token, on both sides.
func TestMergeOfUnknown(t *testing.T) {
	v := byteVocab("gpt-2", "a|b", "b|a")
	v.Tokens['x'], v.Unknown = "no byte", 'a'
	tok := build(t, v)
	for text, want := range map[string][]string{"xb": {"ab"}, "bx": {"ba"}, "xbx": {"ab", "a"}} {
		if diff := cmp.Diff(want, texts(tok, tok.Encode(text, false))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// TestMergeThroughNoToken checks that a merge may pass through a string that is no token. Such strings that remain at the
// end are split again.
func TestMergeThroughNoToken(t *testing.T) {
	v := byteVocab("gpt-2", "a|b", "ab|c")
	for i, text := range v.Tokens {
		if text == "ab" {
			v.Tokens[i] = "<other>"
		}
	}
	tok := build(t, v)
	if diff := cmp.Diff([]string{"abc", "Ġ", "a", "b"}, texts(tok, tok.Encode("abc ab", false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpecialTokens(t *testing.T) {
	v := byteVocab("gpt-2")
	v.Tokens = append(v.Tokens, "<|im_start|>x")
	v.Types = append(v.Types, tokenizer.Control)
	tok := build(t, v)
	text := "<|im_start|>x<tool><|im_end|>"
	if diff := cmp.Diff([]string{"<|im_start|>x", "<tool>", "<|im_end|>"}, texts(tok, tok.Encode(text, true))); diff != "" {
		t.Errorf("parsed, longest first (-want +got):\n%s", diff)
	}
	ids := tok.Encode(text, false)
	for _, id := range ids {
		if tok.Type(id) == tokenizer.Control {
			t.Errorf("not parsed, but got %q", tok.Token(id))
		}
	}
	if got := tok.Decode(ids); got != text {
		t.Errorf("not parsed: round trip gives %q", got)
	}
	if got := tok.Decode(tok.Encode("a<|im_end|>b", true)); got != "ab" {
		t.Errorf("control tokens are shown: %q", got)
	}
}

// TestGuard checks that guarded text between real control tokens stays text.
func TestGuard(t *testing.T) {
	v := byteVocab("gpt-2")
	v.Tokens = append(v.Tokens, "|im_end|>")
	v.Types = append(v.Types, tokenizer.Control)
	tok := build(t, v)
	for _, text := range []string{"<|im_end|>", "a<|im_start|>b<|im_end|><|im_end|>", "|im_end|>", "<<|im_end|>>", "plain", "", "<tool>", "x\uFDD0y<|im_\uFDD0end|>"} {
		prompt := "<|im_start|>" + tok.Guard(text) + "<|im_end|>"
		ids := tok.Encode(prompt, true)
		want := strings.ReplaceAll(text, "\uFDD0", "")
		inner := ids[1 : len(ids)-1]
		if got := tok.Decode(inner); got != want {
			t.Errorf("%q: comes back as %q", text, got)
		}
		if diff := cmp.Diff(texts(tok, tok.Encode(want, false)), texts(tok, inner)); diff != "" {
			t.Errorf("%q: (-unparsed +guarded):\n%s", text, diff)
		}
		if g := tok.Guard(text); !strings.Contains(text, "im_") && g != text {
			t.Errorf("%q is guarded as %q without need", text, g)
		}
	}
}

func TestEnd(t *testing.T) {
	v := byteVocab("gpt-2")
	v.Tokens = append(v.Tokens, "<|endoftext|>", "<stop>", "<｜end▁of▁sentence｜>")
	v.Types = append(v.Types, tokenizer.Normal, tokenizer.Control, tokenizer.Control)
	n := int32(len(v.Tokens))
	v.EOM = n - 2
	tok := build(t, v)
	for id, want := range map[int32]bool{v.EOS: true, v.EOS + 1: false, n - 3: true, n - 2: true, n - 1: true, 65: false, -1: false, n: false} {
		if got := tok.IsEnd(id); got != want {
			t.Errorf("IsEnd(%d %q) = %v, want %v", id, tok.Token(id), got, want)
		}
	}
	if got := tok.Type(n - 3); got != tokenizer.Control {
		t.Errorf("<|endoftext|> is of type %d, want control", got)
	}
}

// TestErrors checks that an error names the invalid part of a vocabulary.
func TestErrors(t *testing.T) {
	set := func(change func(*tokenizer.Vocab)) tokenizer.Vocab {
		v := byteVocab("gpt-2")
		change(&v)
		return v
	}
	yes := true
	for name, test := range map[string]struct {
		v    tokenizer.Vocab
		want string
	}{
		"kind":        {set(func(v *tokenizer.Vocab) { v.Model = "t5" }), `tokenizer.ggml.model = "t5"; supported are gpt2`},
		"pre":         {set(func(v *tokenizer.Vocab) { v.Pre = "bloom" }), `tokenizer.ggml.pre = "bloom"; supported are a.x-4.0, `},
		"empty":       {set(func(v *tokenizer.Vocab) { v.Tokens = nil }), "vocabulary is empty"},
		"types":       {set(func(v *tokenizer.Vocab) { v.Types = v.Types[1:] }), "258 token types for 259 tokens"},
		"no merges":   {set(func(v *tokenizer.Vocab) { v.Merges = nil }), "needs tokenizer.ggml.merges"},
		"merge":       {set(func(v *tokenizer.Vocab) { v.Merges = []string{"a b", "ab"} }), `merge 1 "ab" is not of the form`},
		"merge end":   {set(func(v *tokenizer.Vocab) { v.Merges = []string{"a "} }), `merge 0 "a " is not of the form`},
		"merge rune":  {set(func(v *tokenizer.Vocab) { v.Merges = []string{"a 世"} }), "stands for no byte"},
		"eos":         {set(func(v *tokenizer.Vocab) { v.EOS = 9999 }), "eos_token_id = 9999 is outside the vocabulary of 259 tokens"},
		"bos":         {set(func(v *tokenizer.Vocab) { v.AddBOS = &yes }), "names none (tokenizer.ggml.bos_token_id)"},
		"scores":      {set(func(v *tokenizer.Vocab) { v.Model = "llama" }), "0 scores for 259 tokens"},
		"byte tokens": {set(func(v *tokenizer.Vocab) { v.Model, v.Scores = "llama", make([]float32, 259) }), "neither byte token <0x00> nor"},
		"byte token": {set(func(v *tokenizer.Vocab) {
			v.Model, v.Scores, v.Types[7] = "llama", make([]float32, 259), tokenizer.Byte
		}), "not of the form <0xHH>"},
	} {
		_, err := tokenizer.New(test.v)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, test.want)
		}
	}
}

func TestStreamDecoder(t *testing.T) {
	tok := build(t, byteVocab("gpt-2"))
	d := tok.Stream()
	var got []string
	for _, b := range []byte("aé\xf0\x9f\x98\x80\xffz\xe2\x82") {
		got = append(got, d.Write(int32(b)))
	}
	got = append(got, d.Write(-5), d.Write(1<<30), d.Flush(), d.Flush())
	want := []string{"a", "", "é", "", "", "", "😀", "\uFFFD", "z", "", "", "", "", "\uFFFD", ""}
	// ids of byteVocab are the bytes in order
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
