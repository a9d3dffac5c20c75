package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/pico"
)

// writeBase writes the embedded model's weights for adapter.py: OUT.f32 and OUT.json. They are the dequantised
// Q8_0 values, so that an adapter is trained on the same weights that it is used with.
func writeBase(out string) error {
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		return err
	}
	file, err := os.Create(out + ".f32")
	if err != nil {
		return fmt.Errorf("write the base weights: %w", err)
	}
	defer file.Close()
	w := bufio.NewWriter(file)
	type place struct {
		Shape  []int `json:"shape"`
		Offset int   `json:"offset"`
	}
	index, at := map[string]place{}, 0
	for _, t := range f.Tensors() {
		x, err := t.Floats()
		if err != nil {
			return fmt.Errorf("decode tensor %s: %w", t.Name, err)
		}
		if err := binary.Write(w, binary.LittleEndian, x); err != nil {
			return fmt.Errorf("write the base weights: %w", err)
		}
		shape := slices.Clone(t.Dims)
		slices.Reverse(shape)
		index[t.Name] = place{shape, at}
		at += 4 * len(x)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the base weights: %w", err)
	}
	data, err := json.MarshalIndent(map[string]any{"tensors": index}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(out+".json", data, 0o644)
}
