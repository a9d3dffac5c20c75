package render

import (
	"bytes"
	"sync"
	"testing"
)

// TestBarClears: a bar is taken off its line once; what is printed there afterwards stays.
func TestBarClears(t *testing.T) {
	var out bytes.Buffer
	b := NewBar(&out, new(sync.Mutex))
	b.Clear()
	if out.Len() > 0 {
		t.Errorf("before it was drawn: %q", out.String())
	}
	for _, share := range []float64{0, 0.5} {
		b.Draw("loading", share)
		b.Clear()
		if out.Len() == 0 {
			t.Errorf("a bar of %v is not drawn", share)
		}
		out.Reset()
		if b.Clear(); out.Len() > 0 {
			t.Errorf("a bar of %v is taken off twice: %q", share, out.String())
		}
	}
}
