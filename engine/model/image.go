package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Image is how a projector sees images: Size by Size pixels, in patches of Patch by Patch, of which Merge by Merge make
// a token.
type Image struct {
	Size, Patch, Merge int
	Mean, Std          [3]float32 // of red, green and blue, 0 to 1
	Print              uint64     // gguf.File.Fingerprint
}

// Tokens is per image.
func (i Image) Tokens() int {
	if i.Size == 0 {
		return 0
	}
	side := i.Size / i.Patch / i.Merge
	return side * side
}

// Gemma 3 has 4096.
const maxPatches = 1 << 14

// LoadProjector reads the encoder and projector of Gemma 3's images (llama.cpp's mmproj): SigLIP (arXiv:2303.15343),
// whose patches are averaged by squares, normed and projected. The model is valid until f closes. It differs from a
// text model:
//
//   - Embed, [Dim, 3·Patch·Patch], is for a patch's red, green and blue. Positions, [Context, Dim], include the bias.
//   - Norms are LayerNorm with a bias; the feed-forward layer is Down·gelu(Up·y+UpBias)+DownBias, in gelu's tanh form.
//   - Config.Layers is 1, for the cache: no layer reads another's. HeadDim is rounded up to whole vectors of zeros.
//   - Output is the projection, [Vocab, Dim], times the norm's weights before it. Vocab is the text model's width.
func LoadProjector(f *gguf.File) (*Model, error) {
	const key = "clip.projector_type"
	kind, _ := f.String(key)
	if arch := f.Architecture(); arch != "clip" || kind != "gemma3" {
		return nil, fmt.Errorf("the file is of the architecture %q, and %s is %q: supported are files of the architecture clip with the projector gemma3", arch, key, kind)
	}
	meta := &metadata{file: f, arch: "clip.vision"}
	c, layers := meta.projector()
	if meta.err != nil {
		return nil, fmt.Errorf("read the projector's metadata: %w", meta.err)
	}
	l := &loader{file: f, used: make(map[string]bool)}
	c.Image.Print = f.Fingerprint()
	m := l.projector(c, layers)
	l.leftovers(c)
	if l.err != nil {
		return nil, fmt.Errorf("load the projector: %w", l.err)
	}
	return m, nil
}

func (m *metadata) projector() (c Config, layers int) {
	layers = m.size("block_count", 0)
	c = Config{Arch: "clip", Layers: 1, Dim: m.size("embedding_length", 0), FFN: m.size("feed_forward_length", 0), Heads: m.size("attention.head_count", 0), EmbedScale: 1}
	c.RMSEps = float32(m.float("attention.layer_norm_epsilon", 0))
	i := Image{Size: m.size("image_size", 0), Patch: m.size("patch_size", 0), Merge: m.size("projector.scale_factor", 4)}
	side := i.Size / i.Patch
	mean, _ := m.file.Floats("clip.vision.image_mean")
	std, _ := m.file.Floats("clip.vision.image_std")
	gelu, _ := m.file.Bool("clip.use_gelu")
	switch {
	case m.err != nil:
	case c.Dim%c.Heads != 0:
		m.fail("%d heads do not divide embeddings of %d", c.Heads, c.Dim)
	case i.Size%i.Patch != 0 || side%i.Merge != 0 || side > maxPatches || side*side > maxPatches:
		m.fail("an image of %d pixels by side in patches of %d, of which %d by side make a token: want whole ones, and at most %d patches", i.Size, i.Patch, i.Merge, maxPatches)
	case len(mean) != 3 || len(std) != 3 || slices.Min(std) <= 0:
		m.fail("clip.vision.image_mean and image_std must be three numbers each, and deviations positive")
	case !gelu:
		m.fail("clip.use_gelu is not true: other activations are not supported")
	case !(c.RMSEps > 0) || c.RMSEps > 1:
		m.fail("the norms' epsilon is %v, want a small positive number", c.RMSEps)
	default:
		copy(i.Mean[:], mean)
		copy(i.Std[:], std)
	}
	head := c.Dim / c.Heads
	c.KVHeads, c.HeadDim, c.AttnScale = c.Heads, (head+15)/16*16, float32(1/math.Sqrt(float64(head)))
	c.Image, c.Context = i, side*side
	return c, layers
}

func (l *loader) projector(c Config, layers int) *Model {
	m := &Model{}
	pixels := 3 * c.Image.Patch * c.Image.Patch
	if t, ok := l.take("v.patch_embd.weight", true, c.Image.Patch, c.Image.Patch, 3, c.Dim); ok {
		m.Embed = matrix(t, c.Dim, pixels)
	}
	bias := l.vector("v.patch_embd.bias", c.Dim, true)
	m.Positions = slices.Clone(l.vector("v.position_embd.weight", c.Dim, true, c.Context))
	for i := range m.Positions {
		m.Positions[i] += bias[i%c.Dim]
	}
	m.OutputNorm, m.OutputNormBias = l.norm("v.post_ln", c.Dim)
	// Older files swap the names (clip.cpp of llama.cpp).
	up, down := "ffn_up", "ffn_down"
	if t, ok := l.file.Tensor("v.blk.0.ffn_down.weight"); ok && len(t.Dims) == 2 && t.Dims[0] == c.Dim {
		up, down = down, up
	}
	for i := 0; i < layers && l.err == nil; i++ {
		name := func(part string) string { return fmt.Sprintf("v.blk.%d.%s", i, part) }
		linear := func(part string, rows, cols int) (Matrix, []float32) {
			return l.matrix(name(part)+".weight", rows, cols), l.vector(name(part)+".bias", rows, true)
		}
		var y Layer
		y.AttnNorm, y.AttnNormBias = l.norm(name("ln1"), c.Dim)
		y.FFNNorm, y.FFNNormBias = l.norm(name("ln2"), c.Dim)
		y.Q, y.QBias = linear("attn_q", c.Dim, c.Dim)
		y.K, y.KBias = linear("attn_k", c.Dim, c.Dim)
		y.V, y.VBias = linear("attn_v", c.Dim, c.Dim)
		y.O, y.OBias = linear("attn_out", c.Dim, c.Dim)
		y.Up, y.UpBias = linear(up, c.FFN, c.Dim)
		y.Down, y.DownBias = linear(down, c.Dim, c.FFN)
		m.Layers = append(m.Layers, y)
	}
	m.Output = l.projection(c.Dim)
	c.Vocab = m.Output.Rows
	m.Config = c
	return m
}

// projection transposes the file's matrix, times the norm's weights.
func (l *loader) projection(dim int) Matrix {
	const name = "mm.input_projection.weight"
	weights := l.vector("mm.soft_emb_norm.weight", dim, true)
	t, _ := l.file.Tensor(name)
	rows := 0
	if len(t.Dims) == 2 {
		rows = t.Dims[0]
	}
	if t, ok := l.take(name, true, rows, dim); ok {
		from := floats(t)
		to := make([]float32, len(from))
		for i, v := range from {
			at, row := i/rows, i%rows
			to[row*dim+at] = v * weights[at]
		}
		data, err := gguf.Encode(gguf.F32, to)
		l.err = err
		return Matrix{Rows: rows, Cols: dim, Type: gguf.F32, Data: data, F32: to}
	}
	return Matrix{}
}
