package lora

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWrite checks that a written adapter is read as the same adapter.
func TestWrite(t *testing.T) {
	a := &Adapter{Rank: 3, Scale: 2, Layers: make([][NumTargets]*Pair, small.Layers)}
	for i := range a.Layers {
		for target := range NumTargets {
			rows, cols := Shape(small, target)
			if (i+int(target))%3 > 0 { // not all are there
				a.Layers[i][target] = &Pair{A: numbers(3*cols, i), B: numbers(rows*3, int(target))}
			}
		}
	}
	var b bytes.Buffer
	if err := a.Write(&b, small); err != nil {
		t.Fatal(err)
	}
	got, err := ParseGGUF(b.Bytes(), small)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, got); diff != "" {
		t.Error(diff)
	}
}
