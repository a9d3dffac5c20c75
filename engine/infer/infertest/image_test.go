package infertest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
)

var makeImages = flag.Bool("make-images", false, "write the projectors and the embeddings of testdata/images")

// The shape of a generated projector. Its heads of 12 values are no whole vectors.
const (
	imagePatch, imageMerge, imageSide, imageWidth = 2, 4, ImageSize / imagePatch, 64

	imageDim, imageHeads, imageFFN, imageLayers = 24, 2, 40, 3
)

var imageMean, imageStd = []float32{0.4, 0.5, 0.6}, []float32{0.5, 0.4, 0.3}

// writeProjector writes a projector as GGUF, with the names of llama.cpp's converter: the older ones if swapped.
func writeProjector(w io.Writer, typ gguf.Type, swapped bool) error {
	g := gguf.NewWriter(w)
	g.Set("general.architecture", "clip")
	g.Set("clip.projector_type", "gemma3")
	g.Set("clip.has_vision_encoder", true)
	g.Set("clip.use_gelu", true)
	const v = "clip.vision."
	sizes := map[string]uint32{
		"image_size": ImageSize, "patch_size": imagePatch, "embedding_length": imageDim, "feed_forward_length": imageFFN,
		"block_count": imageLayers, "attention.head_count": imageHeads, "projection_dim": imageWidth, "projector.scale_factor": imageMerge,
	}
	for _, key := range slices.Sorted(maps.Keys(sizes)) {
		g.Set(v+key, sizes[key])
	}
	g.Set(v+"attention.layer_norm_epsilon", 1e-6)
	g.Set(v+"image_mean", imageMean)
	g.Set(v+"image_std", imageStd)
	t := &tensors{Spec: Spec{}, g: g}
	t.matrix("v.patch_embd.weight", imagePatch, imagePatch, 3, imageDim)
	t.vector("v.patch_embd.bias", imageDim, 0)
	t.matrix("v.position_embd.weight", imageDim, imageSide*imageSide)
	t.Type = typ
	up, down := "ffn_up", "ffn_down"
	if swapped {
		up, down = down, up
	}
	linear := func(name string, rows, cols int) {
		t.matrix(name+".weight", cols, rows)
		t.vector(name+".bias", rows, 0)
	}
	norm := func(name string) {
		t.vector(name+".weight", imageDim, 1)
		t.vector(name+".bias", imageDim, 0)
	}
	for l := range imageLayers {
		name := func(part string) string { return fmt.Sprintf("v.blk.%d.%s", l, part) }
		norm(name("ln1"))
		norm(name("ln2"))
		for _, part := range []string{"attn_q", "attn_k", "attn_v", "attn_out"} {
			linear(name(part), imageDim, imageDim)
		}
		linear(name(up), imageFFN, imageDim)
		linear(name(down), imageDim, imageFFN)
	}
	norm("v.post_ln")
	t.vector("mm.soft_emb_norm.weight", imageDim, 1)
	t.matrix("mm.input_projection.weight", imageWidth, imageDim)
	return g.Flush()
}

// TestImages makes projectors and embeddings of pictures, or checks that those of testdata are the same.
func TestImages(t *testing.T) {
	for name, typ := range map[string]gguf.Type{"f16": gguf.F16, "swapped": gguf.BF16} {
		var b bytes.Buffer
		if err := writeProjector(&b, typ, name == "swapped"); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Parse(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var all [][][]float64
		for seed := range pictures {
			all = append(all, referenceImage(f, Picture(seed)))
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string][]byte{"testdata/images/" + name + ".gguf": b.Bytes(), "testdata/images/" + name + ".json": text} {
			if *makeImages {
				if err := os.WriteFile(path, want, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is another, %v: go test ./engine/infer/infertest -run TestImages -make-images writes it", path, err)
			}
		}
	}
}

// referenceImage returns the embeddings of an image, [ImageTokens][width]. It reads the tensors by their names and computes in double
// precision what modeling_siglip.py and modeling_gemma3.py of transformers do.
func referenceImage(f *gguf.File, pixels []byte) [][]float64 {
	tensor := func(name string) []float64 {
		t, ok := f.Tensor(name)
		x, err := t.Floats()
		if !ok || err != nil {
			panic(fmt.Sprint(name, ok, err))
		}
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = float64(v)
		}
		return out
	}
	linear := func(name string, x []float64) []float64 {
		w, out := tensor(name+".weight"), tensor(name+".bias")
		for i := range out {
			for j, v := range x {
				out[i] += w[i*len(x)+j] * v
			}
		}
		return out
	}
	norm := func(name string, x []float64) []float64 {
		w, out := tensor(name+".weight"), tensor(name+".bias")
		var mean, square float64
		for _, v := range x {
			mean += v / float64(len(x))
		}
		for _, v := range x {
			square += (v - mean) * (v - mean) / float64(len(x))
		}
		for i, v := range x {
			out[i] += (v - mean) / math.Sqrt(square+1e-6) * w[i]
		}
		return out
	}
	weight, bias, places := tensor("v.patch_embd.weight"), tensor("v.patch_embd.bias"), tensor("v.position_embd.weight")
	var xs [][]float64
	for at := range imageSide * imageSide { // a convolution whose stride is its width
		x := make([]float64, imageDim)
		for d := range x {
			x[d] = bias[d] + places[at*imageDim+d]
			for colour := range 3 {
				for dy := range imagePatch {
					for dx := range imagePatch {
						row, col := at/imageSide*imagePatch+dy, at%imageSide*imagePatch+dx
						v := (float64(pixels[(row*ImageSize+col)*3+colour])/255 - float64(imageMean[colour])) / float64(imageStd[colour])
						x[d] += v * weight[((d*3+colour)*imagePatch+dy)*imagePatch+dx]
					}
				}
			}
		}
		xs = append(xs, x)
	}
	first, second := "ffn_up", "ffn_down"
	if t, _ := f.Tensor("v.blk.0.ffn_up.weight"); t.Dims[0] == imageFFN {
		first, second = second, first
	}
	for l := range imageLayers {
		name := func(part string) string { return fmt.Sprintf("v.blk.%d.%s", l, part) }
		var qs, ks, vs [][]float64
		for _, x := range xs {
			y := norm(name("ln1"), x)
			qs, ks, vs = append(qs, linear(name("attn_q"), y)), append(ks, linear(name("attn_k"), y)), append(vs, linear(name("attn_v"), y))
		}
		const wide = imageDim / imageHeads
		for i, x := range xs {
			mixed := make([]float64, imageDim)
			for h := 0; h < imageDim; h += wide {
				weights := make([]float64, len(xs))
				for j := range xs {
					for d := h; d < h+wide; d++ {
						weights[j] += qs[i][d] * ks[j][d] / math.Sqrt(wide)
					}
				}
				softmax(weights)
				for j, w := range weights {
					for d := h; d < h+wide; d++ {
						mixed[d] += w * vs[j][d]
					}
				}
			}
			add(x, linear(name("attn_out"), mixed))
			y := linear(name(first), norm(name("ln2"), x))
			for d, v := range y {
				y[d] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
			add(x, linear(name(second), y))
		}
	}
	scale, projection := tensor("mm.soft_emb_norm.weight"), tensor("mm.input_projection.weight")
	width := len(projection) / imageDim
	var out [][]float64
	for row := 0; row < imageSide; row += imageMerge {
		for col := 0; col < imageSide; col += imageMerge {
			mean, square := make([]float64, imageDim), 0.0
			for i := range imageMerge * imageMerge {
				add(mean, norm("v.post_ln", xs[(row+i/imageMerge)*imageSide+col+i%imageMerge]))
			}
			for d := range mean {
				mean[d] /= imageMerge * imageMerge
				square += mean[d] * mean[d] / imageDim
			}
			y := make([]float64, width)
			for d, v := range mean {
				for j := range y {
					y[j] += v / math.Sqrt(square+1e-6) * scale[d] * projection[d*width+j]
				}
			}
			for j, v := range y {
				y[j] = math.Round(v*1e6) / 1e6
			}
			out = append(out, y)
		}
	}
	return out
}
