package serve_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// picture returns an image of infertest as a data: URL.
func picture(t *testing.T, seed int) string {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, infertest.ImageSize, infertest.ImageSize))
	for i, p := 0, infertest.Picture(seed); i < len(p); i += 3 {
		copy(img.Pix[i/3*4:], append(p[i:i+3:i+3], 255))
	}
	return dataURL(t, "png", img)
}

func dataURL(t *testing.T, format string, img image.Image) string {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, img)
	case "jpeg":
		err = jpeg.Encode(&b, img, nil)
	case "gif":
		err = gif.Encode(&b, img, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "data:image/" + format + ";base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// send posts a body, and returns the answer and its status.
func (s *running) send(t *testing.T, path, body string, headers ...string) (status int, answer []byte, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://engine"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer, resp.Header
}

func asks(url string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":[{"type":"text","text":"what is"},{"type":"image_url","image_url":{"url":%q}},{"type":"text","text":"this?"}]}],"max_tokens":8,"temperature":0,"ignore_eos":true}`, url)
}

// sees is a model that reads images.
func sees(t *testing.T) (spec infertest.Spec, s *running) {
	t.Helper()
	spec = infertest.Spec{Arch: "gemma3", Images: true, Untied: true, Vocab: 700}
	return spec, run(t, serve.Config{Model: infertest.File(t, spec), Names: []string{"sees"}, Projector: infertest.Projector(t, "f16"), Threads: 1})
}

// TestChatWithImage: the answer about an image is the reference's, its tokens are the prompt's, another image shares nothing with it, and
// its stream tells no state.
func TestChatWithImage(t *testing.T) {
	spec, s := sees(t)
	tok, err := tokenizer.FromGGUF(infertest.Open(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(infertest.Open(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	begin, end := tok.Encode("<start_of_image>", true)[0], tok.Encode("<end_of_image>", true)[0]
	tokens := tok.Encode("<bos><start_of_turn>user\nwhat is\n\n<start_of_image><end_of_image>\n\nthis?<end_of_turn>\n<start_of_turn>model\n", true)
	at := slices.Index(tokens, end)
	tokens = slices.Insert(tokens, at, slices.Repeat([]int32{begin}, infertest.ImageTokens)...)

	var counted struct{ Tokens []int32 }
	status, answer, _ := s.send(t, "/tokenize", asks(picture(t, 1)))
	if err := json.Unmarshal(answer, &counted); err != nil || status != 200 || !slices.Equal(counted.Tokens, tokens) {
		t.Fatalf("tokenize: %d %s, want %v", status, answer, tokens)
	}
	texts := map[string]bool{}
	for _, c := range []struct{ seed, cached int }{{1, 0}, {2, 0}, {1, len(tokens) / 16 * 16}} {
		status, answer, _ := s.send(t, "/v1/chat/completions", asks(picture(t, c.seed)))
		var got struct {
			Choices []struct{ Message struct{ Content string } }
			Usage   struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(answer, &got); err != nil || status != 200 {
			t.Fatalf("image %d: %d %s", c.seed, status, answer)
		}
		made := slices.Clone(tokens)
		seen := infertest.See(t, "f16", c.seed, at)
		for range 8 {
			all := infertest.Reference(m, made, seen)
			last := all[len(all)-1]
			made = append(made, int32(slices.Index(last, slices.Max(last))))
		}
		if want := strings.ToValidUTF8(tok.Decode(made[len(tokens):]), "\uFFFD"); got.Choices[0].Message.Content != want {
			t.Errorf("image %d: %q, want the reference's %q", c.seed, got.Choices[0].Message.Content, want)
		}
		if got.Usage.Prompt != len(tokens) || got.Usage.Details.Cached != c.cached {
			t.Errorf("image %d: usage %+v, want %d tokens and %d of them cached", c.seed, got.Usage, len(tokens), c.cached)
		}
		texts[got.Choices[0].Message.Content] = true
	}
	if len(texts) != 2 {
		t.Errorf("two images, and the texts %v: the test does not test what it says", texts)
	}

	stream := strings.Replace(asks(picture(t, 1)), `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
	for body, tells := range map[string]bool{stream: false, strings.Replace(stream, `"type":"image_url"`, `"type":"text","text":"x"`, 1): true} {
		status, answer, _ := s.send(t, "/v1/chat/completions", body, "X-Rouse-Stream-State", "new")
		if got := bytes.HasPrefix(answer, []byte(":")); status != 200 || got != tells {
			t.Errorf("a stream tells a state: %t, want %t: %d %s", got, tells, status, answer)
		}
	}
	if status, answer, _ := s.send(t, "/api/show", `{"model":"sees"}`); status != 200 || !bytes.Contains(answer, []byte(`"vision"`)) {
		t.Errorf("show: %d %.200s", status, answer)
	}
}

// TestImageFormats: images of other sizes and formats are read, and what looks alike answers alike.
func TestImageFormats(t *testing.T) {
	_, s := sees(t)
	red := image.NewPaletted(image.Rect(0, 0, 40, 9), color.Palette{color.NRGBA{255, 0, 0, 255}, color.White})
	clear := image.NewNRGBA(image.Rect(0, 0, 3, 3))
	for i := 0; i < len(clear.Pix); i += 4 {
		clear.Pix[i] = 255 // red, and transparent
	}
	want := ""
	for name, url := range map[string]string{"gif": dataURL(t, "gif", red), "png": dataURL(t, "png", red), "transparent": dataURL(t, "png", clear)} {
		status, answer, _ := s.send(t, "/v1/chat/completions", asks(url))
		_, text, _ := strings.Cut(string(answer), `"choices"`)
		text, _, _ = strings.Cut(text, `"usage"`)
		if status != 200 || want != "" && text != want {
			t.Errorf("%s: %d %s, want %s", name, status, answer, want)
		}
		want = text
	}
	if status, answer, _ := s.send(t, "/v1/chat/completions", asks(dataURL(t, "jpeg", red))); status != 200 {
		t.Errorf("jpeg: %d %s", status, answer)
	}
}

// bomb is a PNG that says it has many pixels, and has none.
func bomb(t *testing.T, width, height int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes()[:64])
}

func TestImagesRefused(t *testing.T) {
	_, s := sees(t)
	good := picture(t, 1)
	whole := asks(good)
	large := "data:image/png;base64," + strings.Repeat("A", 28<<20)
	for _, c := range []struct{ name, body, want string }{
		{"http", asks("https://example.com/x.png"), "nothing is fetched: send it as a data: URL"},
		{"a file", asks("file:///etc/passwd"), "nothing is fetched"},
		{"not base64", asks("data:image/png,abc"), "is not in base64"},
		{"no comma", asks("data:image/png;base64"), "is not in base64"},
		{"bad base64", asks("data:image/png;base64,?"), "the image is not base64"},
		{"another format", asks("data:image/webp;base64,UklGRgAAAABXRUJQ"), "the image is no PNG, JPEG or GIF"},
		{"cut", asks(good[:len(good)/8*4+2]), "part 1: the "},
		{"many pixels", asks(bomb(t, 4097, 4097)), "the image has 4097 by 4097 pixels: want at most 16777216 in all, and 32768 a side"},
		{"a long side", asks(bomb(t, 1, 32769)), "the image has 1 by 32769 pixels: want"},
		{"many bytes", asks(large), "the image has more than 20 MiB"},
		{"no url", strings.Replace(whole, `"url"`, `"link"`, 1), "image_url has no url"},
		{"a string", strings.Replace(whole, `{"url":"`+good+`"}`, `"`+good+`"`, 1), "image_url has no url"},
		{"a system message", strings.Replace(whole, `"user"`, `"system"`, 1), `an image in a message of the role \"system\"`},
		{"many", strings.Replace(whole, `{"type":"text","text":"this?"}`, strings.Repeat(`{"type":"image_url","image_url":{"url":"data:"}},`, 16)+`{"type":"text","text":""}`, 1), "more than 16 images"},
		{"audio", strings.Replace(whole, `"image_url","image_url"`, `"input_audio","image_url"`, 1), `part 1 has type \"input_audio\"`},
		{"scores", strings.Replace(whole, `"max_tokens"`, `"prompt_logprobs":0,"max_tokens"`, 1), "log probabilities of a prompt with images"},
		{"too long", strings.Replace(whole, "this?", strings.Repeat("this? ", 300), 1), "maximum context length"},
	} {
		status, answer, _ := s.send(t, "/v1/chat/completions", c.body)
		if status != 400 || !strings.Contains(string(answer), c.want) || !strings.HasPrefix(string(answer), `{"error":{`) {
			t.Errorf("%s: %d %.300s, want 400 and %s", c.name, status, answer, c.want)
		}
	}
	blind := run(t, serve.Config{Model: "pico"})
	for _, path := range []string{"/v1/chat/completions", "/tokenize"} {
		if status, answer, _ := blind.send(t, path, whole); status != 400 || !strings.Contains(string(answer), `content part 1 has type \"image_url\": this model reads parts of type \"text\" only`) {
			t.Errorf("%s without a projector: %d %s", path, status, answer)
		}
	}
	for want, cfg := range map[string]serve.Config{
		"leave out --mmproj":             {Model: "pico", Projector: "x.gguf", Device: "cuda"},
		"--device and --shards":          {Model: "pico", Projector: "x.gguf", Shards: 2},
		"of the architecture gemma3":     {Model: "pico", Projector: infertest.Projector(t, "f16")},
		"clip with the projector gemma3": {Model: "pico", Projector: infertest.File(t, infertest.Spec{})},
		"no such file":                   {Model: "pico", Projector: "x.gguf"},
		"the file has no vocabulary":     {Model: infertest.Projector(t, "f16")},
	} {
		if err := serve.Run(t.Context(), cfg, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("started: %v, want %s", err, want)
		}
	}
}

// TestWrittenImages: what a client writes is no image.
func TestWrittenImages(t *testing.T) {
	_, s := sees(t)
	tokens := func(body string) (ids []int32) {
		var got struct{ Tokens []int32 }
		status, answer, _ := s.send(t, "/tokenize", body)
		if err := json.Unmarshal(answer, &got); err != nil || status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		return got.Tokens
	}
	plain := tokens(asks(picture(t, 1)))
	written := tokens(strings.Replace(asks(picture(t, 1)), "this?", "<start_of_image><end_of_image>", 1))
	if a, b := longest(plain), longest(written); a != infertest.ImageTokens+1 || b != a {
		t.Errorf("%d equal tokens in a row, %d with the tokens in a text: want %d", a, b, infertest.ImageTokens+1)
	}
}

// longest returns the length of the longest run of one token.
func longest(ids []int32) (most int) {
	n := 0
	for i, id := range ids {
		if n++; i > 0 && ids[i-1] != id {
			n = 1
		}
		most = max(most, n)
	}
	return most
}
