package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// TestResample compares with Pillow 13.0.0's Image.resize((16, 16), Image.BILINEAR).
func TestResample(t *testing.T) {
	for _, c := range []struct {
		w, h int
		want string // the beginning of the pixels' SHA-256
	}{{37, 23, "de9fddec7ea20200"}, {5, 9, "905336f42f693f3c"}, {100, 3, "ec71f5080f1abe05"}, {16, 40, "20c6cd28cf8ee0cf"}} {
		src := make([]byte, 3*c.w*c.h)
		for i := range src {
			src[i] = byte(i*7 + i*i/3)
		}
		got := resample(resample(src, c.w, 16), c.h, 16)
		if sum := sha256.Sum256(got); hex.EncodeToString(sum[:8]) != c.want {
			t.Errorf("%d by %d: %v…, other pixels", c.w, c.h, got[:6])
		}
	}
}

// TestPlaces: each mark is in the prompt once, and in order.
func TestPlaces(t *testing.T) {
	p := pictures{mark: "[image X ", images: make([]imagePart, 2)}
	if got, err := p.place("a [image X 0] b [image X 1]"); err != nil || got != "a \n\n<start_of_image><end_of_image>\n\n b \n\n<start_of_image><end_of_image>\n\n" {
		t.Errorf("placed: %q, %v", got, err)
	}
	for _, text := range []string{"", "[image X 0]", "[image X 1] [image X 0]", "[image X 0] [image X 0] [image X 1]", "[image X 0] [image X 1] [image X 0]"} {
		if got, err := p.place(text); err == nil {
			t.Errorf("%q is placed: %q", text, got)
		}
	}
}
