package infer

import (
	"fmt"

	"github.com/rouse-dev/rouse/engine/model"
)

// Image is an image in a sequence: its embeddings are those of the N tokens from position At on, whatever they are.
// These tokens see one another.
type Image struct {
	At     int    `json:"at"`
	N      int    `json:"n"`      // model.Image.Tokens
	Pixels []byte `json:"pixels"` // [Size, Size, 3] red, green and blue
}

// Whole returns the largest number of Tokens, hi or less, that ends within no image.
func (it *Item) Whole(hi int) int {
	for i := range it.Images {
		if from := it.Images[i].At - it.Pos; from < hi && hi < from+it.Images[i].N {
			return max(from, 0)
		}
	}
	return hi
}

func (it *Item) checkImages(c model.Config) error {
	end := 0
	for i, m := range it.Images {
		switch {
		case c.Image.Size == 0:
			return fmt.Errorf("image %d: the model reads no images", i)
		case m.At < end || m.N != c.Image.Tokens() || len(m.Pixels) != 3*c.Image.Size*c.Image.Size:
			return fmt.Errorf("image %d: %d tokens from %d on, of %d bytes: want %d tokens of %d bytes, after the one before", i, m.N, m.At, len(m.Pixels), c.Image.Tokens(), 3*c.Image.Size*c.Image.Size)
		}
		end = m.At + m.N
	}
	if n := len(it.Tokens); it.Whole(n) != n {
		return fmt.Errorf("%d tokens from position %d end within an image", n, it.Pos)
	}
	return nil
}
