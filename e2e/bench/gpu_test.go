package main

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestHubModel reads a generated folder as its readers do. The header names each tensor's bytes without a gap, every
// number of a token has one text, and a value is within its range.
func TestHubModel(t *testing.T) {
	dir := t.TempDir()
	s := hubModel{shapeOf(4e6, hubVocab)}
	if err := s.write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]struct {
		Dtype   string
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(raw[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	data := raw[8+n:]
	var ends [][2]int
	for name, x := range header {
		values := 1
		for _, d := range x.Shape {
			values *= d
		}
		if x.Dtype != "BF16" || 2*values != x.Offsets[1]-x.Offsets[0] {
			t.Errorf("%s: %+v", name, x)
		}
		ends = append(ends, x.Offsets)
	}
	slices.SortFunc(ends, func(a, b [2]int) int { return a[0] - b[0] })
	at := 0
	for _, e := range ends {
		if e[0] != at {
			t.Errorf("a tensor begins at %d, the one before it ends at %d", e[0], at)
		}
		at = e[1]
	}
	if at != len(data) || len(header) != 2+11*s.Layers {
		t.Errorf("%d bytes of %d tensors, the file has %d", at, len(header), len(data))
	}
	if size := float64(len(data)); size < 2e6 || size > 6e6 {
		t.Errorf("%g bytes, 4e6 were asked for", size)
	}
	for i := 0; i < 2000; i += 2 {
		if v := binary.LittleEndian.Uint16(data[i:]) &^ 0x8000; v < 0x3c80 || v > 0x3cff {
			t.Fatalf("value %d is %#x", i/2, v)
		}
	}
	var tok struct {
		Model struct{ Vocab map[string]int }
	}
	if raw, err = os.ReadFile(filepath.Join(dir, "tokenizer.json")); err == nil {
		err = json.Unmarshal(raw, &tok)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]bool, hubVocab)
	seen[256] = true // the one that ends, which is an added token
	for text, id := range tok.Model.Vocab {
		if seen[id] {
			t.Errorf("%q and another one have the number %d", text, id)
		}
		seen[id] = true
	}
	if i := slices.Index(seen, false); i >= 0 {
		t.Errorf("token %d has no text", i)
	}
	if id := tok.Model.Vocab["Ġ"]; id != ' ' {
		t.Errorf("a space is token %d", id)
	}
}
