package gguf_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/pico"
)

// TestFingerprint checks that a copy of a model has its fingerprint, and a model with another vocabulary or other
// bytes in the middle of any tensor has a different one.
func TestFingerprint(t *testing.T) {
	of := func(data []byte) uint64 {
		t.Helper()
		f, err := gguf.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		return f.Fingerprint()
	}
	raw := pico.GGUF()
	want := of(raw)
	if got := of(slices.Clone(raw)); got != want {
		t.Errorf("a copy has %x, want %x", got, want)
	}
	f, err := gguf.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range f.Tensors() {
		other := slices.Clone(raw)
		at := bytes.Index(raw, tensor.Data)
		other[at+len(tensor.Data)/2] ^= 1
		if of(other) == want {
			t.Errorf("with another %s it has the same", tensor.Name)
		}
	}
	other := slices.Clone(raw)
	other[bytes.Index(other, []byte("general.architecture"))+len("general.architecture")+12] ^= 1 // in its value
	if of(other) == want {
		t.Error("with another architecture it has the same")
	}
}
