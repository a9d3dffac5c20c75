package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"

	"github.com/ollama/ollama/ml/backend/ggml"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// encoded is one text and its ids. Text that is not valid UTF-8 is in Base64.
type encoded struct {
	Text    string  `json:"text,omitempty"`
	Base64  []byte  `json:"base64,omitempty"`
	Special bool    `json:"special,omitempty"`
	IDs     []int32 `json:"ids"`
}

// encodeTexts encodes a file's texts with the vocabulary that it names.
func encodeTexts(path string) error {
	var head struct {
		Vocab, Pre     string
		BOS            int32
		AddSpacePrefix *bool
	}
	var file struct{ Vocab tokenizer.Vocab }
	if err := readJSON(path, &head); err != nil {
		return err
	}
	if err := readJSON(filepath.Join(filepath.Dir(path), head.Vocab), &file); err != nil {
		return err
	}
	v := file.Vocab
	v.Pre, v.BOS, v.AddSpacePrefix = head.Pre, head.BOS, head.AddSpacePrefix
	o, err := openVocab(v)
	if err != nil {
		return err
	}
	ends := []int32{}
	for id := range v.Tokens {
		if o.model.TokenIsEog(id) {
			ends = append(ends, int32(id))
		}
	}
	set := map[string]any{"madeWith": origin, "addBOS": o.model.AddBOSToken(), "ends": ends}
	_, err = update(path, "cases", set, func(e *encoded) (err error) {
		text := e.Text
		if e.Base64 != nil {
			text = string(e.Base64)
		}
		e.IDs, err = o.tokenize(text, e.Special)
		return err
	})
	return err
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// openVocab writes a GGUF file without weights, which llama.cpp opens as a vocabulary.
func openVocab(v tokenizer.Vocab) (*oracle, error) {
	f, err := os.CreateTemp("", "golden-*.gguf")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	w := gguf.NewWriter(f)
	w.SetString("general.architecture", "llama")
	if v.StripAfter {
		w.SetString("general.name", "phi-3") // llama.cpp recognises the family by this name
	}
	w.SetString("tokenizer.ggml.model", v.Model)
	if v.Pre != "" {
		w.SetString("tokenizer.ggml.pre", v.Pre)
	}
	w.SetStrings("tokenizer.ggml.tokens", v.Tokens)
	kinds := make([]int32, len(v.Types))
	for i, t := range v.Types {
		kinds[i] = int32(t)
	}
	w.SetInt32s("tokenizer.ggml.token_type", kinds)
	if v.Scores != nil {
		w.SetFloats("tokenizer.ggml.scores", v.Scores)
	}
	if v.Merges != nil {
		w.SetStrings("tokenizer.ggml.merges", v.Merges)
	}
	for key, id := range map[string]int32{"bos": v.BOS, "eos": v.EOS, "unknown": v.Unknown} {
		if id != tokenizer.None {
			w.SetUint32("tokenizer.ggml."+key+"_token_id", uint32(id))
		}
	}
	if v.AddSpacePrefix != nil {
		w.SetBool("tokenizer.ggml.add_space_prefix", *v.AddSpacePrefix)
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return openOracle(f.Name(), true)
}

// decoded is ggml's result for infertest.Blocks(Type, 64·256).
type decoded struct {
	Type  gguf.Type `json:"type"`
	Name  string    `json:"name"`
	Hash  string    `json:"hash"`  // FNV-1a over the little-endian bits of all values
	First []float32 `json:"first"` // the first values, for debugging
}

// decodeBlocks decodes random blocks of a file's types.
func decodeBlocks(path string) error {
	_, err := update(path, "cases", map[string]any{"madeWith": origin}, func(d *decoded) error {
		const n = 64 * gguf.KBlock
		x := ggml.ConvertToF32(infertest.Blocks(d.Type, n), uint32(d.Type), n)
		h := fnv.New64a()
		for _, v := range x {
			b := math.Float32bits(v)
			_, _ = h.Write([]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)})
		}
		d.Name, d.Hash, d.First = d.Type.String(), fmt.Sprintf("%x", h.Sum64()), x[:8]
		return nil
	})
	return err
}
