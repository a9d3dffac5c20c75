package infertest

import (
	"embed"
	"encoding/json"
	"os"
	"path/filepath"
)

//go:embed testdata/images
var images embed.FS

// Images have ImageSize by ImageSize pixels, and become ImageTokens tokens.
const (
	ImageSize   = 16
	ImageTokens = 4
	pictures    = 5
)

// Picture returns the pixels of an image.
func Picture(seed int) []byte {
	out := make([]byte, 3*ImageSize*ImageSize)
	for i := range out {
		out[i] = byte(i*(2*seed+7) + i*i/(seed+3))
	}
	return out
}

// Seen is an image in a prompt: the embeddings of the tokens from At on.
type Seen struct {
	At      int
	Vectors [][]float64
}

// Projector writes a projector of Gemma 3, for text models of width 64, to a file of the test: "f16", or "swapped",
// in BF16 with the older names.
func Projector(t T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mmproj-model.gguf")
	data, err := images.ReadFile("testdata/images/" + name + ".gguf")
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatalf("write a projector: %v", err)
	}
	return path
}

// See returns the embeddings that another implementation makes of a picture, one of the first five.
func See(t T, projector string, picture, at int) Seen {
	t.Helper()
	var all [pictures][][]float64
	data, err := images.ReadFile("testdata/images/" + projector + ".json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatalf("read embeddings: %v", err)
	}
	return Seen{at, all[picture]}
}
