package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/gif" // image.Decode reads these formats
	_ "image/jpeg"
	_ "image/png"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// A decoder takes up to pixelBytes a pixel.
const (
	maxImages     = 16
	maxImageBytes = 20 << 20
	maxPixels     = 1 << 24
	maxSide       = 1 << 15
	pixelBytes    = 20
)

// Around an image's tokens (Gemma3Processor of transformers).
const (
	imageBegin = "<start_of_image>"
	imageEnd   = "<end_of_image>"
)

type imagePart struct {
	part int             // index among the message's parts
	at   int             // offset in the message's text
	data json.RawMessage // image_url
}

type pictures struct {
	reads  bool
	mark   string // random, so no client can write it
	images []imagePart
}

func (p *pictures) marked(i int) string { return p.mark + strconv.Itoa(i) + "]" }

func (p *pictures) pictured(m *message) (string, error) {
	c := &m.Content
	if len(c.images) == 0 {
		return c.text, nil
	}
	switch {
	case !p.reads:
		return "", badRequest("messages.content", notText, c.images[0].part, "image_url")
	case m.Role != "user":
		return "", badRequest("messages.content", "content part %d is an image in a message of the role %s: want it in one of the role user", c.images[0].part, quote(m.Role))
	case len(p.images)+len(c.images) > maxImages:
		return "", badRequest("messages.content", "the messages have more than %d images: send fewer", maxImages)
	case p.mark == "":
		p.mark = "[image " + rand.Text() + " "
	}
	var text strings.Builder
	at := 0
	for _, x := range c.images {
		text.WriteString(c.text[at:x.at] + p.marked(len(p.images)))
		at = x.at
		p.images = append(p.images, x)
	}
	return text.String() + c.text[at:], nil
}

func (p *pictures) place(text string) (string, error) {
	var out strings.Builder
	for i := range p.images {
		before, after, found := strings.Cut(text, p.marked(i))
		if !found {
			return "", misplaced()
		}
		out.WriteString(before + "\n\n" + imageBegin + imageEnd + "\n\n")
		text = after
	}
	out.WriteString(text)
	if len(p.images) > 0 && strings.Contains(out.String(), p.mark) {
		return "", misplaced()
	}
	return out.String(), nil
}

func misplaced() error {
	return badRequest("messages", "the model's chat template does not keep the images, or not in their order: send texts only")
}

// expand makes room for each image's tokens and returns where. They are never read; begin is in the prompt anyway and
// changes no penalty.
func (s *Server) expand(p *pictures, ids []int32) (out []int32, at []int, err error) {
	if len(p.images) == 0 {
		return ids, nil, nil
	}
	tok := s.engine.Tokenizer()
	begin, end := tok.Encode(imageBegin, true), tok.Encode(imageEnd, true)
	if len(begin) != 1 || len(end) != 1 {
		return nil, nil, badRequest("messages", "the model's vocabulary has no tokens %s and %s: it reads no images", imageBegin, imageEnd)
	}
	n := s.engine.Model().Image.Tokens()
	for i, id := range ids {
		out = append(out, id)
		if id == begin[0] && i+1 < len(ids) && ids[i+1] == end[0] {
			at = append(at, len(out))
			out = append(out, slices.Repeat(begin, n)...)
		}
	}
	if len(at) != len(p.images) {
		return nil, nil, misplaced()
	}
	return out, at, nil
}

func (s *Server) seeImages(ctx context.Context, paid *inbound.Body, p *pictures, req *engine.Request) error {
	ids, at, err := s.expand(p, req.Prompt)
	if err != nil {
		return err
	}
	req.Prompt = ids
	size := s.engine.Model().Image.Size
	for i, x := range p.images {
		if err := paid.Take(ctx, int64(9*size*size)); err != nil { // pixels, and the worker's copy
			return err
		}
		pixels, err := x.decode(ctx, paid, size)
		if err != nil {
			return err
		}
		req.Images = append(req.Images, infer.Image{At: at[i], Pixels: pixels})
	}
	return nil
}

// decode returns [size, size, 3].
func (x *imagePart) decode(ctx context.Context, paid *inbound.Body, size int) ([]byte, error) {
	refuse := func(format string, args ...any) ([]byte, error) {
		return nil, badRequest("messages.content", "content part %d: %s", x.part, fmt.Sprintf(format, args...))
	}
	var field struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(x.data, &field) != nil || field.URL == "" {
		return refuse("image_url has no url: want an object with the url of an image")
	}
	head, text, found := strings.Cut(field.URL, ",")
	switch {
	case !strings.HasPrefix(head, "data:"):
		return refuse("the image is at %s, and nothing is fetched: send it as a data: URL (data:image/png;base64,…)", quote(field.URL))
	case !found || !strings.HasSuffix(head, ";base64"):
		return refuse("the data: URL of the image is not in base64: want data:image/png;base64,…")
	case len(text) > maxImageBytes/3*4+4:
		return refuse("the image has more than %d MiB: send a smaller one", maxImageBytes>>20)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return refuse("the image is not base64: %v", err)
	}
	c, format, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case errors.Is(err, image.ErrFormat):
		return refuse("the image is no PNG, JPEG or GIF")
	case err != nil:
		return refuse("the image can't be read: %v", err)
	case c.Width < 1 || c.Height < 1 || c.Width > maxPixels/c.Height || max(c.Width, c.Height) > maxSide:
		return refuse("the image has %d by %d pixels: want at most %d in all, and %d a side", c.Width, c.Height, maxPixels, maxSide)
	}
	cost := int64(2*len(x.data) + pixelBytes*c.Width*c.Height + 3*size*c.Height) // the last: a narrow image is first made wider
	if err := paid.Take(ctx, cost); err != nil {
		return nil, err
	}
	defer paid.Give(cost)
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil || img.Bounds().Empty() {
		return refuse("the %s can't be read: %v", format, err)
	}
	across := resample(colours(img), img.Bounds().Dx(), size)
	return resample(across, img.Bounds().Dy(), size), nil
}

// colours drops a PNG's transparency.
func colours(img image.Image) []byte {
	b := img.Bounds()
	n, known := img.(*image.NRGBA)
	if !known {
		drawn := image.NewRGBA(b)
		draw.Draw(drawn, b, img, b.Min, draw.Src)
		n = &image.NRGBA{Pix: drawn.Pix, Stride: drawn.Stride, Rect: b}
	}
	out := make([]byte, 0, 3*b.Dx()*b.Dy())
	for y := range b.Dy() {
		for x := range b.Dx() {
			out = append(out, n.Pix[y*n.Stride+4*x:][:3]...)
		}
	}
	return out
}

// resample returns rows of w pixels as columns of size pixels; two calls resize an image. It is Pillow's bilinear
// filter with its rounding: a triangle of two pixels of the smaller image, weights in 22 bits.
func resample(src []byte, w, size int) []byte {
	const bits = 22
	h := len(src) / 3 / w
	out := make([]byte, 3*size*h)
	scale := float64(w) / float64(size)
	wide := max(scale, 1)
	for x := range size {
		centre := (float64(x) + 0.5) * scale
		lo, hi := max(0, int(centre-wide+0.5)), min(w, int(centre+wide+0.5))
		part, sum := make([]float64, hi-lo), 0.0
		for i := range part {
			part[i] = max(0, 1-math.Abs(float64(lo+i)-centre+0.5)/wide)
			sum += part[i]
		}
		weights := make([]int, len(part))
		for i, v := range part {
			weights[i] = int(v/sum*(1<<bits) + 0.5)
		}
		for y := range h {
			for colour := range 3 {
				at, v := (y*w+lo)*3+colour, 1<<(bits-1)
				for _, weight := range weights {
					v += weight * int(src[at])
					at += 3
				}
				out[(x*h+y)*3+colour] = byte(min(v>>bits, 255))
			}
		}
	}
	return out
}
