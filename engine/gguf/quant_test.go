package gguf_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

var quantised = []gguf.Type{gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0, gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.IQ4_NL, gguf.IQ4_XS, gguf.MXFP4}

// TestQuantise checks that normally distributed values come back with the error that the number of bits
// allows, that blocks of zeros come back as zeros, and that outliers, constants and signs survive.
func TestQuantise(t *testing.T) {
	// root mean square error over root mean square value: a code's step is some 5 sigma / 2^bits, its error step/√12
	most := map[gguf.Type]float64{
		gguf.Q4_0: 0.12, gguf.Q4_1: 0.1, gguf.Q5_0: 0.06, gguf.Q5_1: 0.05, gguf.Q8_0: 0.008,
		gguf.Q2_K: 0.42, gguf.Q3_K: 0.24, gguf.Q4_K: 0.1, gguf.Q5_K: 0.05, gguf.Q6_K: 0.026,
		gguf.IQ4_NL: 0.12, gguf.IQ4_XS: 0.12, gguf.MXFP4: 0.14,
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range quantised {
		x := make([]float32, 4096)
		for i := range x {
			x[i] = float32(r.NormFloat64() * math.Pow(10, float64(i/512)-4))
		}
		y := roundTrip(t, typ, x)
		for at := 0; at < len(x); at += 512 {
			var e, s float64
			for i := at; i < at+512; i++ {
				e += float64(x[i]-y[i]) * float64(x[i]-y[i])
				s += float64(x[i]) * float64(x[i])
			}
			// at 1e-4 the scale of a scale is a subnormal half in some types
			if got := math.Sqrt(e / s); got > most[typ]*(1+2*float64(1-min(at, 1))) || !(got > most[typ]/8) {
				t.Errorf("%s, size 1e%d: relative error %.4f, want about %.4f", typ, at/512-4, got, most[typ])
			}
		}
		for i, v := range roundTrip(t, typ, make([]float32, 256)) {
			if v != 0 {
				t.Fatalf("%s: zero %d comes back as %v", typ, i, v)
			}
		}
		for _, c := range []float32{1, -1} {
			x := make([]float32, 256)
			for i := range x {
				x[i] = c
			}
			x[77] = -8 * c
			if y := roundTrip(t, typ, x); math.Abs(float64(y[77]/x[77]-1)) > 0.03 {
				t.Errorf("%s: the outlier %v comes back as %v", typ, x[77], y[77])
			}
		}
	}
}

func roundTrip(t *testing.T, typ gguf.Type, x []float32) []float32 {
	t.Helper()
	data, err := gguf.Encode(typ, x)
	if err != nil {
		t.Fatal(err)
	}
	y := make([]float32, len(x))
	if err := gguf.Decode(typ, y, data); err != nil {
		t.Fatal(err)
	}
	return y
}

var blocks = flag.String("blocks", "", "write the blocks of TestDecodeGolden into this `folder`")

// TestDecodeGolden checks that random bytes decode to the same numbers as in ggml
// (testdata/quant.json, made by engine/golden/llama.py of the blocks that -blocks writes).
func TestDecodeGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/quant.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Cases []struct {
			Type  gguf.Type
			Hash  string
			First []float32
		}
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) != len(quantised) { // IQ4_NL's and IQ4_XS's goldens are infertest's; F16 and BF16 are here
		t.Fatalf("%d cases", len(g.Cases))
	}
	for _, c := range g.Cases {
		const n = 64 * gguf.KBlock
		out, data := make([]float32, n), infertest.Blocks(c.Type, n)
		if err := gguf.Decode(c.Type, out, data); err != nil {
			t.Fatal(err)
		}
		if *blocks != "" {
			if err := os.WriteFile(filepath.Join(*blocks, fmt.Sprint(uint32(c.Type))), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range c.First {
			if out[i] != want {
				t.Errorf("%s: value %d is %v, want %v", c.Type, i, out[i], want)
				break
			}
		}
		if got := hash(out); got != c.Hash {
			t.Errorf("%s: hash %s, want %s", c.Type, got, c.Hash)
		}
	}
}

// hash returns FNV-1a of the values' bits.
func hash(x []float32) string {
	h := fnv.New64a()
	for _, v := range x {
		b := math.Float32bits(v)
		h.Write([]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)})
	}
	return fmt.Sprintf("%x", h.Sum64())
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct {
		typ  gguf.Type
		n    int
		size int
		want string
	}{
		{gguf.Q4_K, 255, 144, "blocks of 256, and a row has 255"},
		{gguf.Q4_K, 256, 143, "256 values of Q4_K take 144 bytes, got 143"},
		{gguf.Q4_0, 32, 19, "32 values of Q4_0 take 18 bytes, got 19"},
		{16, 256, 66, "IQ2_XXS is not supported; supported are F32"},
		{99, 32, 18, "type 99 is unknown"},
	} {
		if err := gguf.Decode(c.typ, make([]float32, c.n), make([]byte, c.size)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
	if _, err := gguf.Encode(16, make([]float32, 256)); err == nil || !strings.Contains(err.Error(), "IQ2_XXS cannot be written") {
		t.Errorf("encode: %v", err)
	}
	for typ := range gguf.Type(64) {
		if got, want := typ.Decodable(), gguf.Decode(typ, nil, nil) == nil; got != want {
			t.Errorf("%s: decodable %v, decodes %v", typ, got, want)
		}
	}
}

// FuzzQuantise checks that no values and no bytes panic, and that encoding decoded values
// changes none by more than a step.
func FuzzQuantise(f *testing.F) {
	f.Add(uint8(0), []byte("0123456789"))
	f.Add(uint8(7), []byte{0, 0x7c, 0, 0xfc, 1, 0x7e, 0xff, 0xff}) // infinities, NaN
	f.Fuzz(func(t *testing.T, which uint8, seed []byte) {
		typ := quantised[int(which)%len(quantised)]
		size, err := typ.RowBytes(gguf.KBlock)
		if err != nil {
			t.Fatal(err)
		}
		if len(seed) == 0 {
			return
		}
		data := make([]byte, size)
		for i := range data {
			data[i] = seed[i%len(seed)] ^ byte(i/len(seed))
		}
		x := make([]float32, gguf.KBlock)
		if err := gguf.Decode(typ, x, data); err != nil {
			t.Fatal(err)
		}
		again, err := gguf.Encode(typ, x)
		if err != nil || len(again) != size {
			t.Fatalf("%d bytes, %v", len(again), err)
		}
	})
}
