package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"unicode/utf8"
)

// origin is written into every file.
const origin = "llama.cpp as in github.com/ollama/ollama v0.17.4 (CPU, 1 thread, F32 KV cache, flash attention off)"

// nearTie is the gap between the two highest logits below which rounding may decide.
const nearTie = 0.05

// encoded is one text and its ids. Text that is not valid UTF-8 is in Base64.
type encoded struct {
	Text    string  `json:"text,omitempty"`
	Base64  []byte  `json:"base64,omitempty"`
	Special bool    `json:"special,omitempty"`
	IDs     []int32 `json:"ids"`
}

// run is one prompt: the logits after it and its greedy continuation.
type run struct {
	Prompt string  `json:"prompt,omitempty"`
	IDs    []int32 `json:"ids"`
	Logits string  `json:"logits"` // after the last id: Base64 of little-endian float32
	Greedy []int32 `json:"greedy"`
	Text   string  `json:"text"`
	Ties   []tie   `json:"ties,omitempty"`

	first []float32 // Logits as numbers
}

// tie is a step of the continuation whose two best tokens are closer than nearTie.
type tie struct {
	Step        int     `json:"step"`
	First       int32   `json:"first"`
	Second      int32   `json:"second"`
	FirstLogit  float32 `json:"firstLogit"`
	SecondLogit float32 `json:"secondLogit"`
}

func newEncoded(text string, special bool, ids []int32) encoded {
	e := encoded{Text: text, Special: special, IDs: ids}
	if !utf8.ValidString(text) {
		e.Text, e.Base64 = "", []byte(text)
	}
	return e
}

func encodeFloats(x []float32) string {
	buf := make([]byte, 0, 4*len(x))
	for _, f := range x {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(buf)
}

// writeJSON writes head's fields, and then each list of lists with one element a line.
func writeJSON(path string, head map[string]any, lists map[string][]any) error {
	if head["madeWith"] == nil {
		head["madeWith"] = origin
	}
	var b bytes.Buffer
	b.WriteString("{")
	comma := "\n"
	for _, k := range sortedKeys(head) {
		line, err := marshal(head[k])
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s%q: %s", comma, k, line)
		comma = ",\n"
	}
	for _, k := range sortedKeys(lists) {
		fmt.Fprintf(&b, "%s%q: [", comma, k)
		comma = ",\n"
		for j, e := range lists[k] {
			line, err := marshal(e)
			if err != nil {
				return err
			}
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "\n%s", line)
		}
		b.WriteString("\n]")
	}
	b.WriteString("\n}\n")
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// marshal is json.Marshal without HTML escapes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
