package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/pico"
)

func TestModelComesBack(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	if err := writeBase(base); err != nil {
		t.Fatal(err)
	}
	w, err := readWeights(base)
	if err != nil {
		t.Fatal(err)
	}
	file, err := w.replace(pico.GGUF(), func(name string) string { return name })
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, pico.GGUF()) {
		t.Error("the shipped model's own weights give another file")
	}
	clear(w.data[:1<<12])
	if file, err = w.replace(pico.GGUF(), func(name string) string { return name }); err != nil || bytes.Equal(file, pico.GGUF()) {
		t.Errorf("other weights give the same file, or %v", err)
	}
	w.data = w.data[:len(w.data)-1]
	if _, err := w.replace(pico.GGUF(), func(name string) string { return name }); err == nil || !strings.Contains(err.Error(), "train it in that shape") {
		t.Errorf("weights that are cut off: got %v", err)
	}
}

func TestAdaptersComeBack(t *testing.T) {
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range pico.AdapterPaths {
		a, err := lora.ReadFS(pico.Adapters, to, c)
		if err != nil {
			t.Fatal(err)
		}
		w := &weights{Tensors: map[string]place{}}
		for i, layer := range a.Layers {
			for target, pair := range layer {
				part := fmt.Sprintf("blk.%d.%s.", i, []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}[target])
				for half, x := range map[string][]float32{"lora_a": pair.A, "lora_b": pair.B} {
					w.Tensors[part+half] = place{[]int{len(x)}, len(w.data)}
					if w.data, err = binary.Append(w.data, binary.LittleEndian, x); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if name == "pirate" {
			to += "/adapter_model.safetensors"
		}
		shipped, err := pico.Adapters.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.Clone(shipped)
		clear(got[len(got)-1<<12:])
		if name == "pirate" {
			err = w.replacePEFT(got)
		} else {
			got, err = w.replace(got, func(name string) string { return strings.Replace(name, ".weight", "", 1) })
		}
		if err != nil || !bytes.Equal(got, shipped) {
			t.Errorf("%s: its own weights give another file, or %v", name, err)
		}
	}
}
