package worker_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/worker"
)

var update = flag.Bool("update", false, "write testdata/ again")

// vector is a file of testdata: a frame's payload and its meaning.
type vector struct {
	Frame  string         `json:"frame"` // batch or output
	What   string         `json:"what"`
	Hex    string         `json:"hex"`
	Batch  *worker.Batch  `json:"batch,omitempty"`
	Output *worker.Output `json:"output,omitempty"`
}

// vectors has the meanings; the files have the bytes too.
var vectors = map[string]vector{
	"batch-begin": {Frame: "batch", What: "A sequence begins: a prompt of five tokens, all of it in one step.", Batch: &worker.Batch{
		Step: 1, Items: []worker.Item{{ID: 7, Count: 5, Blocks: []int32{3, 2}, Begin: true, Prompt: 5, Tokens: []int32{1, 300, 70000, 0, 12}, Sample: true}},
	}},
	"batch-decode": {Frame: "batch", What: "Three sequences decode; one of them gets a new block. Two ended.", Batch: &worker.Batch{
		Step: 1000, Ends: []uint64{5, 3}, Items: []worker.Item{
			{ID: 7, Pos: 130, Count: 1, Sample: true}, {ID: 8, Pos: 128, Count: 1, Blocks: []int32{41}, Sample: true}, {ID: 6, Pos: 40000, Count: 1, Sample: true},
		},
	}},
	"batch-chunks": {Frame: "batch", What: "Chunks of prompts: one continues behind a cached prefix and is scored, one begins again after a preemption, with what it made, and a block is copied.", Batch: &worker.Batch{
		Step: 2, Copies: []worker.Copy{{From: 9, To: 200}}, Items: []worker.Item{
			{ID: 20, Pos: 16, Count: 3, Blocks: []int32{9, 8, 7, 500}, Begin: true, Prompt: 40, Tokens: slices.Repeat([]int32{17}, 40), Score: true,
				Spec: json.RawMessage(`{"logprobs":true,"top":2}`)},
			{ID: 3, Count: 4, Blocks: []int32{200}, Begin: true, Prompt: 2, Tokens: []int32{4, 5, 6, 7}, Sample: true,
				Spec: json.RawMessage(`{"adapter":2,"index":1,"temperature":0.7,"top_p":0.9,"logit_bias":{"5":-100},"seed":-42,"min_tokens":3,"ends":[2]}`)},
		},
	}},
	"batch-mask": {Frame: "batch", What: "A sparse and a dense mask of 200 tokens.", Batch: &worker.Batch{
		Step: 3, Items: []worker.Item{
			{ID: 1, Pos: 9, Count: 1, Sample: true, Mask: []uint64{0, 1 << 63, 0, 3}},
			{ID: 2, Pos: 9, Count: 1, Sample: true, Mask: []uint64{^uint64(0), ^uint64(0) - 1, ^uint64(0), 255}},
		},
	}},
	"batch-draft": {Frame: "batch", What: "The last known token and three guesses.", Batch: &worker.Batch{
		Step: 4, Items: []worker.Item{{ID: 1, Pos: 9, Count: 4, Sample: true, Draft: []int32{11, 12, 1000}}},
	}},
	"batch-pool": {Frame: "batch", What: "The end of a prompt whose vector is wanted.", Batch: &worker.Batch{
		Step: 5, Items: []worker.Item{{ID: 1, Count: 2, Blocks: []int32{0}, Begin: true, Prompt: 2, Tokens: []int32{4, 5}, Pool: true, Spec: json.RawMessage(`{"pool":"mean"}`)}},
	}},
	"output-tokens": {Frame: "output", What: "A token each, and three of a draft.", Output: &worker.Output{
		Step: 1000, Busy: 1500 * time.Microsecond, Items: []worker.Out{
			{ID: 7, Tokens: []sample.Choice{{Token: 5}}}, {ID: 8, Tokens: []sample.Choice{{Token: 151000}}}, {ID: 6, Tokens: []sample.Choice{{Token: 11}, {Token: 12}, {Token: 9}}},
		},
	}},
	"output-logprobs": {Frame: "output", What: "A token with alternatives, and a prompt's scores.", Output: &worker.Output{
		Step: 2, Items: []worker.Out{
			{ID: 3, Logprobs: true, Tokens: []sample.Choice{{Token: 5, Logprob: -0.25, Top: []sample.Alternative{{Token: 5, Logprob: -0.25}, {Token: 0, Logprob: -2}}}}},
			{ID: 20, ScoresFrom: 17, Scores: []sample.Choice{{Token: 17, Logprob: -1}, {Token: 17, Logprob: -0.5, Top: []sample.Alternative{{Token: 17, Logprob: -0.5}}}}},
		},
	}},
	"output-vector": {Frame: "output", What: "A vector, and a sequence that failed.", Output: &worker.Output{
		Step: 5, Items: []worker.Out{{ID: 1, Vector: []float32{1, -0.5, 3e-8}}, {ID: 2, Error: "no token is left"}},
	}},
	"output-error": {Frame: "output", What: "The whole step failed.", Output: &worker.Output{Step: 6, Error: "out of memory"}},
}

// TestVectors compares every frame with its file, both ways.
func TestVectors(t *testing.T) {
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".json")
			payload := encode(v)
			if *update {
				v.Hex = hex.EncodeToString(payload)
				text, err := json.MarshalIndent(v, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var file vector
			if err := json.Unmarshal(text, &file); err != nil {
				t.Fatal(err)
			}
			if got := hex.EncodeToString(payload); got != file.Hex {
				t.Errorf("encoded as\n%s, the file has\n%s", got, file.Hex)
			}
			raw, err := hex.DecodeString(file.Hex)
			if err != nil {
				t.Fatal(err)
			}
			got := decode(t, v.Frame, raw)
			opts := []cmp.Option{cmpopts.IgnoreUnexported(worker.Batch{}, worker.Output{}), cmpopts.EquateEmpty()}
			if file.Batch != nil {
				for i := range file.Batch.Items { // the file is indented, the frame is not
					var b bytes.Buffer
					if spec := file.Batch.Items[i].Spec; len(spec) > 0 {
						if err := json.Compact(&b, spec); err != nil {
							t.Fatal(err)
						}
						file.Batch.Items[i].Spec = b.Bytes()
					}
				}
			}
			if diff := cmp.Diff(file.Batch, got.Batch, opts...); diff != "" {
				t.Errorf("batch (-file +decoded):\n%s", diff)
			}
			if diff := cmp.Diff(file.Output, got.Output, opts...); diff != "" {
				t.Errorf("output (-file +decoded):\n%s", diff)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != len(vectors) {
		t.Errorf("%d files for %d vectors, %v", len(files), len(vectors), err)
	}
}

func encode(v vector) []byte {
	if v.Batch != nil {
		return worker.AppendBatch(nil, v.Batch)
	}
	return worker.AppendOutput(nil, v.Output)
}

func decode(t *testing.T, frame string, payload []byte) (v vector) {
	t.Helper()
	var err error
	if frame == "batch" {
		v.Batch = &worker.Batch{}
		err = worker.DecodeBatch(payload, v.Batch)
	} else {
		v.Output = &worker.Output{}
		err = worker.DecodeOutput(payload, v.Output)
	}
	if err != nil {
		t.Error(err)
	}
	return v
}

// FuzzDecode checks for any input that the decoder does not panic, and that an accepted batch or output is the same after
// an encoding and another decoding.
func FuzzDecode(f *testing.F) {
	for _, v := range vectors {
		f.Add(v.Frame == "batch", encode(v))
	}
	f.Add(true, []byte("\x01\x00\x00\x01\x02\x12\x05\x80\x80\x80\x08\x00"))
	f.Fuzz(func(t *testing.T, batch bool, payload []byte) {
		if batch {
			var one, two worker.Batch
			if worker.DecodeBatch(payload, &one) != nil {
				return
			}
			if err := worker.DecodeBatch(worker.AppendBatch(nil, &one), &two); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&one, &two, cmpopts.IgnoreUnexported(worker.Batch{}), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			return
		}
		var one, two worker.Output
		if worker.DecodeOutput(payload, &one) != nil {
			return
		}
		again := worker.AppendOutput(nil, &one)
		if err := worker.DecodeOutput(again, &two); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, worker.AppendOutput(nil, &two)) { // floats may be NaN
			t.Errorf("%x becomes %x", again, worker.AppendOutput(nil, &two))
		}
	})
}

// TestRefused checks that wrong frames are refused.
func TestRefused(t *testing.T) {
	for name, payload := range map[string]string{
		"nothing":                  "",
		"cut off":                  "\x01\x00",
		"too many ends":            "\x01\x7f",
		"bytes left":               "\x01\x00\x00\x00\x00",
		"more items than bytes":    "\x01\x00\x00\xff\xff\xff\xff\x0f",
		"no tokens":                "\x01\x00\x00\x01\x02\x42\x00\x00",
		"more prompt than tokens":  "\x01\x00\x00\x01\x02\x01\x00\x05\x01\x03\x00",
		"guesses without a choice": "\x01\x00\x00\x01\x02\x60\x00\x02\x01\x05",
		"an empty mask":            "\x01\x00\x00\x01\x02\x12\x00\x00\x00",
		"a huge mask":              "\x01\x00\x00\x01\x02\x12\x00\xff\xff\xff\xff\x7f\x00",
		"a mask's word outside":    "\x01\x00\x00\x01\x02\x12\x00\x02\x01\x05\x00\x00\x00\x00\x00\x00\x00\x01",
		"a negative block":         "\x01\x00\x00\x01\x02\x82\x00\x01\x01",
	} {
		var b worker.Batch
		if err := worker.DecodeBatch([]byte(payload), &b); err == nil {
			t.Errorf("%s: accepted as %+v", name, b)
		}
	}
	for name, payload := range map[string]string{
		"nothing":            "",
		"an error and items": "\x01\x00\x01x\x01\x02\x00",
		"unknown flag":       "\x01\x00\x00\x01\x02\x20",
		"an empty vector":    "\x01\x00\x00\x01\x02\x08\x00",
		"vector cut off":     "\x01\x00\x00\x01\x02\x08\x02\x00\x00\x00\x00",
	} {
		var o worker.Output
		if err := worker.DecodeOutput([]byte(payload), &o); err == nil {
			t.Errorf("output, %s: accepted as %+v", name, o)
		}
	}
}

// TestConns sends frames of all sizes through a socket's stream and through memory.
func TestConns(t *testing.T) {
	a, b := net.Pipe()
	left, right := worker.Pipe()
	for name, ends := range map[string][2]worker.Conn{"stream": {worker.NewConn(a), worker.NewConn(b)}, "memory": {left, right}} {
		t.Run(name, func(t *testing.T) {
			sizes := []int{0, 1, 1000, 3 << 20, 5}
			go func() {
				for i, n := range sizes {
					if err := ends[0].Send(worker.Kind(i+1), bytes.Repeat([]byte{byte(i)}, n)); err != nil {
						t.Error(err)
					}
				}
				ends[0].Close()
			}()
			for i, n := range sizes {
				kind, payload, err := ends[1].Receive()
				if err != nil || kind != worker.Kind(i+1) || !bytes.Equal(payload, bytes.Repeat([]byte{byte(i)}, n)) {
					t.Fatalf("frame %d: kind %d, %d bytes, %v", i, kind, len(payload), err)
				}
			}
			if _, _, err := ends[1].Receive(); err != io.EOF {
				t.Errorf("after the last frame: %v, want EOF", err)
			}
			if err := ends[1].Send(worker.KindOutput, nil); err == nil {
				t.Error("sent to nobody")
			}
		})
	}
}

// TestLyingLength sends a length beyond the limit, and a length without that many bytes.
func TestLyingLength(t *testing.T) {
	for name, bytes := range map[string]string{"too long": "\xff\xff\xff\xff\x02", "zero": "\x00\x00\x00\x00\x02", "cut off": "\x00\x00\x00\x08\x02abc", "cut head": "\x01\x00"} {
		a, b := net.Pipe()
		go func() {
			_, _ = io.WriteString(a, bytes)
			a.Close()
		}()
		if _, _, err := worker.NewConn(b).Receive(); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSpec encodes all parameters to JSON and decodes them.
func TestSpec(t *testing.T) {
	seed := int64(-1 << 62)
	want := sample.Params{
		Temperature: 0.1, TopK: 3, TopP: 0.3, MinP: 0.01, RepetitionPenalty: 1.1, PresencePenalty: -2, FrequencyPenalty: 1e-9,
		LogitBias: map[int32]float32{7: 0.1}, Seed: &seed, MinTokens: 2, Ends: []int32{9}, Logprobs: true, Top: 20,
	}
	s := worker.Spec{Params: want}
	text, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	back, err := worker.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, back.Params); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text, err := new(worker.Spec).JSON(); err != nil || len(text) != 0 {
		t.Errorf("the zero spec: %q, %v", text, err)
	}
	if _, err := worker.ParseSpec([]byte("{")); err == nil {
		t.Error("broken JSON is accepted")
	}
}

func BenchmarkBatch256(b *testing.B) {
	batch := worker.Batch{Step: 1}
	for i := range 256 {
		it := worker.Item{ID: uint64(1000 + i), Pos: 300 + i, Count: 1, Sample: true}
		if i%16 == 0 {
			it.Blocks = []int32{int32(i * 7)}
		}
		batch.Items = append(batch.Items, it)
	}
	var buf []byte
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			buf = worker.AppendBatch(buf[:0], &batch)
		}
		b.ReportMetric(float64(len(buf)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		var got worker.Batch
		for b.Loop() {
			if err := worker.DecodeBatch(buf, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
}
