package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// FromGGUF keeps no reference to f.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	v, err := ReadVocab(f)
	if err != nil {
		return nil, err
	}
	return New(v)
}

// ReadVocab reads the keys tokenizer.ggml.*. A key of the wrong type is an error.
func ReadVocab(f *gguf.File) (Vocab, error) {
	r := reader{f: f}
	v := Vocab{
		Model:  r.text("tokenizer.ggml.model"),
		Pre:    r.text("tokenizer.ggml.pre"),
		Tokens: list(&r, "tokenizer.ggml.tokens", "strings", f.Strings),
		Scores: list(&r, "tokenizer.ggml.scores", "floats", f.Floats),
		Merges: list(&r, "tokenizer.ggml.merges", "strings", f.Strings),
	}
	if r.err == nil && v.Model == "" {
		r.err = fmt.Errorf("tokenizer: the file has no vocabulary: tokenizer.ggml.model is missing")
	}
	if r.err == nil && v.Tokens == nil {
		r.err = fmt.Errorf("tokenizer: the file has no vocabulary: tokenizer.ggml.tokens is missing")
	}
	for _, n := range list(&r, "tokenizer.ggml.token_type", "integers", f.Ints) {
		v.Types = append(v.Types, Type(n))
	}
	bos, eos, unknown := None, None, None
	if v.Model == "llama" && len(v.Tokens) > 2 { // sentencepiece's numbering
		unknown, bos, eos = 0, 1, 2
	}
	v.Sep = None
	if v.Model == "bert" {
		unknown, v.Sep = named(v.Tokens, "[UNK]"), r.id("tokenizer.ggml.seperator_token_id", named(v.Tokens, "[SEP]")) // GGUF's spelling
		bos = r.id("tokenizer.ggml.cls_token_id", named(v.Tokens, "[CLS]"))
		v.Lowercase = r.flag("tokenizer.ggml.normalizer.lowercase")
	}
	v.BOS = r.id("tokenizer.ggml.bos_token_id", bos)
	v.EOS = r.id("tokenizer.ggml.eos_token_id", eos)
	v.EOT = r.id("tokenizer.ggml.eot_token_id", None)
	v.EOM = r.id("tokenizer.ggml.eom_token_id", None)
	v.Unknown = r.id("tokenizer.ggml.unknown_token_id", unknown)
	v.AddBOS = r.flag("tokenizer.ggml.add_bos_token")
	v.AddEOS = r.flag("tokenizer.ggml.add_eos_token")
	v.AddSpacePrefix = r.flag("tokenizer.ggml.add_space_prefix")
	v.NFC = r.normalizes(v.Model)
	v.StripAfter = stripsAfter(f, v.Model)
	if b := r.flag("tokenizer.ggml.remove_extra_whitespaces"); b != nil && *b && v.Model == "llama" && r.err == nil {
		r.err = fmt.Errorf("tokenizer: tokenizer.ggml.remove_extra_whitespaces = true is not supported with an SPM vocabulary")
	}
	return v, r.err
}

// stripsAfter recognises Phi 3, as llama.cpp does: GGUF has no key for this.
func stripsAfter(f *gguf.File, model string) bool {
	name, _ := f.String("general.name")
	name = strings.ToLower(name)
	return model == "llama" && (f.Architecture() == "phi3" || strings.Contains(name, "phi-3") || strings.Contains(name, "phi3"))
}

type reader struct {
	f   *gguf.File
	err error
}

// absent accepts a missing key, not another type.
func (r *reader) absent(key, want string) {
	if _, _, _, ok := r.f.Kind(key); ok && r.err == nil {
		r.err = fmt.Errorf("tokenizer: %s is not of type %s", key, want)
	}
}

func (r *reader) text(key string) string {
	s, ok := r.f.String(key)
	if !ok {
		r.absent(key, "string")
	}
	return s
}

func (r *reader) flag(key string) *bool {
	b, ok := r.f.Bool(key)
	if !ok {
		r.absent(key, "bool")
		return nil
	}
	return &b
}

func (r *reader) id(key string, missing int32) int32 {
	n, ok := r.f.Uint(key)
	if !ok {
		r.absent(key, "unsigned integer")
		return missing
	}
	if n > math.MaxInt32 {
		n = math.MaxInt32 // New rejects it
	}
	return int32(n)
}

func list[T any](r *reader, key, want string, read func(string) ([]T, bool)) []T {
	v, ok := read(key)
	if !ok {
		r.absent(key, "array of "+want)
	}
	return v
}

// normalizes: the model's tokenizer.json normalizes to NFC; nil: unknown.
func (r *reader) normalizes(model string) *bool {
	raw := r.text("tokenizer.huggingface.json")
	if raw == "" || model != "gpt2" {
		return nil
	}
	var file struct {
		Normalizer *normalizer `json:"normalizer"`
	}
	err := json.Unmarshal([]byte(raw), &file)
	nfc := false
	if err == nil && file.Normalizer != nil {
		err = file.Normalizer.check(&nfc)
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("tokenizer: tokenizer.huggingface.json: %w", err)
	}
	return &nfc
}

type normalizer struct {
	Type string        `json:"type"`
	Of   []*normalizer `json:"normalizers"`
}

// check finds NFC and rejects other normalizers: the tokens would be wrong.
func (n *normalizer) check(nfc *bool) error {
	switch n.Type {
	case "NFC":
		*nfc = true
	case "Sequence":
		for _, part := range n.Of {
			if part == nil {
				continue
			}
			if err := part.check(nfc); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("the normalizer %q is not supported with byte-level BPE: want NFC or none", n.Type)
	}
	return nil
}

// Index's -1 is None.
func named(tokens []string, text string) int32 { return int32(slices.Index(tokens, text)) }
