package tokenizer_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// file makes a GGUF file without tensors; set overrides its keys (nil removes a key).
func file(t testing.TB, model string, set map[string]any) *gguf.File {
	t.Helper()
	keys := map[string]any{
		"tokenizer.ggml.model": model, "tokenizer.ggml.tokens": []string{"<unk>", "<s>", "</s>", "a"},
		"tokenizer.ggml.token_type": []int32{2, 3, 3, 1}, "tokenizer.ggml.scores": []float32{0, 0, 0, -1},
		"tokenizer.ggml.merges": []string{}, "tokenizer.ggml.eos_token_id": uint32(2),
	}
	for k, v := range set {
		keys[k] = v
	}
	var b bytes.Buffer
	w := gguf.NewWriter(&b)
	w.Set("general.architecture", "llama")
	for k, v := range keys {
		w.Set(k, v)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFromGGUF(t *testing.T) {
	tok, err := tokenizer.FromGGUF(file(t, "llama", map[string]any{"tokenizer.ggml.add_bos_token": false}))
	if err != nil {
		t.Fatal(err)
	}
	if id, add := tok.BOS(); id != 1 || add {
		t.Errorf("beginning of text %d, %v; want 1, false", id, add)
	}
	if !tok.IsEnd(2) || tok.IsEnd(1) || tok.Size() != 4 {
		t.Errorf("ends %v %v, size %d", tok.IsEnd(2), tok.IsEnd(1), tok.Size())
	}
	// characters without a token and without byte tokens are the unknown token
	if got := texts(tok, tok.Encode("a", false)); strings.Join(got, " ") != "<unk> <unk> <unk> a" {
		t.Errorf("got %q", got)
	}
}

func TestFromGGUFErrors(t *testing.T) {
	for name, test := range map[string]struct {
		model string
		set   map[string]any
		want  string
	}{
		"no model":     {"llama", map[string]any{"tokenizer.ggml.model": nil}, "tokenizer.ggml.model is missing"},
		"no tokens":    {"llama", map[string]any{"tokenizer.ggml.tokens": nil}, "tokenizer.ggml.tokens is missing"},
		"wrong type":   {"llama", map[string]any{"tokenizer.ggml.tokens": "a b"}, "tokenizer.ggml.tokens is not of type array of strings"},
		"wrong id":     {"llama", map[string]any{"tokenizer.ggml.bos_token_id": "one"}, "bos_token_id is not of type unsigned integer"},
		"wrong flag":   {"llama", map[string]any{"tokenizer.ggml.add_bos_token": uint32(1)}, "add_bos_token is not of type bool"},
		"far id":       {"llama", map[string]any{"tokenizer.ggml.eos_token_id": uint32(1 << 31)}, "eos_token_id = 2147483647 is outside"},
		"no merges":    {"gpt2", map[string]any{"tokenizer.ggml.merges": nil}, "needs tokenizer.ggml.merges"},
		"no scores":    {"llama", map[string]any{"tokenizer.ggml.scores": nil}, "0 scores for 4 tokens"},
		"few types":    {"llama", map[string]any{"tokenizer.ggml.token_type": []int32{1}}, "1 token types for 4 tokens"},
		"white space":  {"llama", map[string]any{"tokenizer.ggml.remove_extra_whitespaces": true}, "remove_extra_whitespaces = true is not supported"},
		"unknown kind": {"t5", nil, `tokenizer.ggml.model = "t5"; supported are`},
		"normalizer":   {"gpt2", map[string]any{"tokenizer.huggingface.json": `{"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]}}`}, `the normalizer "Lowercase" is not supported`},
		"no json":      {"gpt2", map[string]any{"tokenizer.huggingface.json": `{`}, "tokenizer.huggingface.json: unexpected end"},
		"no unknown":   {"bert", map[string]any{"tokenizer.ggml.tokens": []string{"[CLS]", "[SEP]", "a", "b"}}, "needs an unknown token"},
	} {
		_, err := tokenizer.FromGGUF(file(t, test.model, test.set))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, test.want)
		}
	}
}

// TestShipped checks that the shipped model's vocabulary preserves any text.
func TestShipped(t *testing.T) {
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	readJSON(t, "golden-gpt-2.json", &g)
	for _, c := range g.Cases {
		if got := tok.Decode(tok.Encode(c.Text, false)); got != c.Text {
			t.Errorf("%q comes back as %q", c.Text, got)
		}
	}
}

// FuzzNew checks that no vocabulary makes New, Encode or Decode panic.
func FuzzNew(f *testing.F) {
	f.Add(true, "gpt-2", "a b ab <x>", "\x01\x01\x01\x03", "a b,ab a", int32(3), "ab<x>")
	f.Add(false, "", "<unk> <s> <0x41> ▁ a ▁a", "\x02\x03\x06\x01\x01\x01", "", int32(1), " aA")
	f.Fuzz(func(t *testing.T, bpe bool, pre, tokens, types, merges string, special int32, text string) {
		v := tokenizer.Vocab{
			Model: "llama", Pre: pre, Tokens: strings.Split(tokens, " "), Merges: strings.Split(merges, ","),
			BOS: special, EOS: special, EOT: tokenizer.None, EOM: tokenizer.None, Unknown: 0,
		}
		if bpe {
			v.Model = "gpt2"
		}
		for i := range v.Tokens {
			v.Scores = append(v.Scores, -float32(i%5))
			kind := byte(1)
			if i < len(types) {
				kind = types[i]
			}
			v.Types = append(v.Types, tokenizer.Type(kind))
		}
		tok, err := tokenizer.New(v)
		if err != nil {
			return
		}
		for _, parse := range []bool{false, true} {
			ids := tok.Encode(tok.Guard(text), parse)
			for _, id := range ids {
				if id < 0 || int(id) >= tok.Size() {
					t.Fatalf("%q gives id %d", text, id)
				}
			}
			tok.Decode(ids)
		}
	})
}
