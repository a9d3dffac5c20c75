package gguf_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// sample returns a small file with one value of every kind that the Writer makes.
func sample(t testing.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gguf.NewWriter(&buf)
	w.Set("general.architecture", "llama")
	w.Set("llama.block_count", 2)
	w.Set("big", uint64(1<<40))
	w.Set("eps", 1e-5)
	w.Set("yes", true)
	w.Set("bools", []bool{true, false, true})
	w.Set("tokens", []string{"a", "", "ß"})
	w.Set("types", []int32{1, -3, 6})
	w.Set("scores", []float32{0, -1.5})
	x := make([]float32, 64)
	for i := range x {
		x[i] = float32(i) - 31.5
	}
	for _, tt := range []struct {
		name string
		typ  gguf.Type
		dims []int
	}{{"f32", gguf.F32, []int{3}}, {"f16", gguf.F16, []int{4, 2}}, {"q8", gguf.Q8_0, []int{32, 2}}, {"bf16", gguf.BF16, []int{2, 2, 2}}} {
		n := 1
		for _, d := range tt.dims {
			n *= d
		}
		data, err := gguf.Encode(tt.typ, x[:n])
		if err != nil {
			t.Fatal(err)
		}
		w.AddTensor(tt.name, tt.dims, tt.typ, data)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, sample(t), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	checkSample(t, f)
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	checkSample(t, f) // the pages are read again
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := f.String("general.architecture"); ok || len(f.Tensors()) != 0 {
		t.Error("a closed file still gives values")
	}
}

func checkSample(t *testing.T, f *gguf.File) {
	t.Helper()
	eq := func(what string, got, want any, ok bool) {
		t.Helper()
		if d := cmp.Diff(want, got); d != "" || !ok {
			t.Errorf("%s (found %v): -want +got\n%s", what, ok, d)
		}
	}
	eq("architecture", f.Architecture(), "llama", true)
	n, ok := f.Uint("llama.block_count")
	eq("uint32", n, uint64(2), ok)
	n, ok = f.Uint("big")
	eq("uint64", n, uint64(1<<40), ok)
	x, ok := f.Float("eps")
	eq("float", x, float64(float32(1e-5)), ok)
	b, ok := f.Bool("yes")
	eq("bool", b, true, ok)
	ss, ok := f.Strings("tokens")
	eq("strings", ss, []string{"a", "", "ß"}, ok)
	bs, ok := f.Bools("bools")
	eq("bools", bs, []bool{true, false, true}, ok)
	is, ok := f.Ints("types")
	eq("ints", is, []int32{1, -3, 6}, ok)
	fs, ok := f.Floats("scores")
	eq("floats", fs, []float32{0, -1.5}, ok)
	eq("keys", len(f.Keys()), 9, true)
	kind, elem, count, ok := f.Kind("tokens")
	eq("kind", []any{kind, elem, count}, []any{gguf.KindArray, gguf.KindString, 3}, ok)
	if _, ok := f.Uint("eps"); ok {
		t.Error("Uint reads a float")
	}
	if _, ok := f.String("absent"); ok {
		t.Error("String finds an absent key")
	}
	for _, name := range []string{"f32", "f16", "q8", "bf16"} {
		tt, ok := f.Tensor(name)
		if !ok {
			t.Fatalf("tensor %s is missing", name)
		}
		got, err := tt.Floats()
		if err != nil {
			t.Fatal(err)
		}
		tol := 0.0
		if tt.Type == gguf.Q8_0 || tt.Type == gguf.BF16 {
			tol = 0.13 // half a step of the largest block, 31.5/127/2
		}
		for i, g := range got {
			if want := float64(i) - 31.5; math.Abs(float64(g)-want) > tol {
				t.Errorf("%s[%d]: got %v, want %v", name, i, g, want)
			}
		}
	}
}

// TestCopy rewrites a file value by value and checks that the bytes are the same.
func TestCopy(t *testing.T) {
	want := sample(t)
	f, err := gguf.Parse(want)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	w := gguf.NewWriter(&got)
	for _, k := range f.Keys() {
		w.Copy(f, k)
	}
	for _, tt := range f.Tensors() {
		w.AddTensor(tt.Name, tt.Dims, tt.Type, tt.Data)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the copy differs")
	}
	w = gguf.NewWriter(io.Discard)
	w.Copy(f, "absent")
	if err := w.Flush(); err == nil || !strings.Contains(err.Error(), `"absent" is not in the file`) {
		t.Errorf("copy of an absent key: %v", err)
	}
}

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		f := gguf.F16ToF32(uint16(h))
		if math.IsNaN(float64(f)) != (h&0x7c00 == 0x7c00 && h&0x3ff != 0) {
			t.Fatalf("%#x: wrong NaN-ness %v", h, f)
		}
		if math.IsNaN(float64(f)) {
			continue
		}
		if want := valueOfHalf(h); float64(f) != want || math.Signbit(float64(f)) != math.Signbit(want) {
			t.Fatalf("%#x: got %v, want %v", h, f, want)
		}
		if got := gguf.F32ToF16(f); got != uint16(h) {
			t.Fatalf("%#x → %v → %#x", h, f, got)
		}
		// Half way to the next value: ties go to the even one.
		if h&0x7fff < 0x7bff {
			g := gguf.F16ToF32(uint16(h + 1))
			want := uint16(h + h&1)
			if got := gguf.F32ToF16((f + g) / 2); got != want {
				t.Fatalf("between %#x and %#x: got %#x, want %#x", h, h+1, got, want)
			}
		}
	}
	for _, tt := range []struct {
		in   float32
		want uint16
	}{{65519, 0x7bff}, {65520, 0x7c00}, {1e30, 0x7c00}, {-1e30, 0xfc00}, {1e-30, 0}, {float32(math.NaN()), 0x7e00}} {
		if got := gguf.F32ToF16(tt.in); got != tt.want {
			t.Errorf("F32ToF16(%v): got %#x, want %#x", tt.in, got, tt.want)
		}
	}
	for _, x := range []float32{1, -2.5, 3.140625} {
		if got := gguf.BF16ToF32(gguf.F32ToBF16(x)); got != x {
			t.Errorf("BF16: got %v, want %v", got, x)
		}
	}
	if got := gguf.F32ToBF16(math.Float32frombits(0x3f808000)); got != 0x3f80 {
		t.Errorf("BF16 tie: got %#x, want 0x3f80", got)
	}
}

// valueOfHalf returns the value of a half, by the definition of IEEE 754.
func valueOfHalf(h int) float64 {
	sign, exponent, fraction := 1-2*float64(h>>15), h>>10&31, float64(h&0x3ff)
	switch exponent {
	case 31:
		return math.Inf(int(sign))
	case 0:
		return math.Copysign(math.Ldexp(fraction, -24), sign)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// raw builds broken headers by hand.
type raw struct{ bytes.Buffer }

func (r *raw) u32(v ...uint32) *raw { _ = binary.Write(r, binary.LittleEndian, v); return r }
func (r *raw) u64(v ...uint64) *raw { _ = binary.Write(r, binary.LittleEndian, v); return r }
func (r *raw) str(s string) *raw    { r.u64(uint64(len(s))); r.WriteString(s); return r }
func (r *raw) pad(n int) *raw       { r.Write(make([]byte, n)); return r }
func head(tensors, keys uint64) *raw {
	r := &raw{}
	r.WriteString("GGUF")
	return r.u32(3).u64(tensors, keys)
}

func broken() map[string]struct {
	data []byte
	want string
} {
	nest := head(0, 1).str("k").u32(9)
	for range 6 {
		nest.u32(9).u64(1)
	}
	return map[string]struct {
		data []byte
		want string
	}{
		"magic":           {[]byte("GGML\x03\x00\x00\x00----------------"), `byte 0: it does not begin with "GGUF": this is not a GGUF file`},
		"empty":           {nil, "byte 0: magic needs 4 bytes"},
		"big endian":      {append([]byte("GGUF\x00\x00\x00\x03"), make([]byte, 16)...), "byte 4: the file is big-endian"},
		"version":         {append([]byte("GGUF\x01\x00\x00\x00"), make([]byte, 16)...), "byte 4: version is 1, want 2 or 3"},
		"many keys":       {head(0, 1<<60).Bytes(), "byte 16: 1152921504606846976 metadata keys announced"},
		"many tensors":    {head(1<<60, 0).Bytes(), "byte 8: 1152921504606846976 tensors announced"},
		"long key":        {head(0, 1).u64(1 << 62).pad(20).Bytes(), "byte 24: metadata key 0 is announced with"},
		"empty key":       {head(0, 1).str("").u32(7).pad(9).Bytes(), "byte 24: metadata key 0 has 0 bytes"},
		"kind":            {head(0, 1).str("k").u32(77).pad(8).Bytes(), `byte 33: metadata key "k" has unknown kind 77`},
		"array kind":      {head(0, 1).str("k").u32(9, 99).u64(0).Bytes(), `byte 37: metadata key "k" has elements of unknown kind 99`},
		"array length":    {head(0, 1).str("k").u32(9, 8).u64(1 << 61).Bytes(), `elements of metadata key "k" announced`},
		"array of string": {head(0, 1).str("k").u32(9, 8).u64(2).str("ok").u64(1 << 63).Bytes(), `an element of metadata key "k" is announced with`},
		"deep array":      {nest.pad(64).Bytes(), "nests arrays deeper than 4"},
		"same key":        {head(0, 2).str("k").u32(7).pad(1).str("k").u32(7).pad(1).Bytes(), `byte 38: metadata key "k" occurs twice`},
		"alignment":       {head(0, 1).str("general.alignment").u32(4, 24).Bytes(), "must be a power of two"},
		"alignment zero":  {head(0, 1).str("general.alignment").u32(4, 0).Bytes(), "must be a power of two"},
		"alignment kind":  {head(0, 1).str("general.alignment").u32(8).str("32").Bytes(), "must be a power of two"},
		"no dims":         {head(1, 0).str("t").u32(0).pad(64).Bytes(), `byte 33: tensor "t" has 0 dimensions`},
		"many dims":       {head(1, 0).str("t").u32(5).pad(64).Bytes(), `tensor "t" has 5 dimensions`},
		"zero dim":        {head(1, 0).str("t").u32(1).u64(0).u32(0).u64(0).pad(64).Bytes(), "dimension 0 is 0"},
		"dims overflow":   {head(1, 0).str("t").u32(3).u64(1<<31, 1<<31, 1<<31).u32(0).u64(0).pad(64).Bytes(), "overflow"},
		"huge dim":        {head(1, 0).str("t").u32(1).u64(1 << 63).u32(0).u64(0).pad(64).Bytes(), "too large"},
		"q8 row":          {head(1, 0).str("t").u32(2).u64(33, 32).u32(8).u64(0).pad(4096).Bytes(), "Q8_0 stores values in blocks of 32, and a row has 33"},
		"type":            {head(1, 0).str("t").u32(1).u64(1).u32(1000).u64(0).pad(64).Bytes(), `byte 45: tensor "t": tensor type 1000 is unknown`},
		"outside":         {head(1, 0).str("t").u32(1).u64(100).u32(0).u64(0).pad(64).Bytes(), `byte 24: tensor "t": 400 bytes at data offset 0`},
		"far offset":      {head(1, 0).str("t").u32(1).u64(1).u32(0).u64(1 << 62).pad(64).Bytes(), "lies outside the file"},
		"offset aligned":  {head(1, 0).str("t").u32(1).u64(1).u32(0).u64(8).pad(64).Bytes(), "not a multiple of the alignment 32"},
		"overlap":         {head(2, 0).str("a").u32(1).u64(4).u32(0).u64(0).str("b").u32(1).u64(4).u32(0).u64(0).pad(6 + 16).Bytes(), `tensor "b": the tensors' data lie one over the other`},
		"same tensor":     {head(2, 0).str("t").u32(1).u64(1).u32(0).u64(0).str("t").u32(1).u64(1).u32(0).u64(0).pad(64).Bytes(), `tensor "t" occurs twice`},
	}
}

func TestBroken(t *testing.T) {
	for name, tt := range broken() {
		t.Run(name, func(t *testing.T) {
			f, err := gguf.Parse(tt.data)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got file %v, error %v; want an error with %q", f != nil, err, tt.want)
			}
		})
	}
}

// TestTruncated cuts a good file at every length.
func TestTruncated(t *testing.T) {
	data := sample(t)
	whole, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	last := whole.Tensors()[3]
	end := bytes.Index(data, last.Data) + len(last.Data)
	for n := range end {
		if _, err := gguf.Parse(data[:n]); err == nil {
			t.Fatalf("%d of %d bytes parse", n, end)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short.gguf")
	if err := os.WriteFile(short, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.gguf")
	if err := os.WriteFile(bad, broken()["type"].data, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe.gguf")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file",
		pipe:                       "is not a regular file",
		dir:                        "is a directory",
		short:                      "has 4 bytes, a GGUF file has at least 24",
		bad:                        "bad.gguf: byte 45",
	} {
		if _, err := gguf.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open %s: got %v, want an error with %q", path, err, want)
		}
	}
}

func TestWriterErrors(t *testing.T) {
	for want, use := range map[string]func(w *gguf.Writer){
		`key "k" is set twice`: func(w *gguf.Writer) { w.Set("k", true); w.Set("k", "") },
		"has 0 bytes":          func(w *gguf.Writer) { w.Set("", true) },
		`tensor "t" is added twice`: func(w *gguf.Writer) {
			w.AddTensor("t", []int{1}, 0, make([]byte, 4))
			w.AddTensor("t", []int{1}, 0, make([]byte, 4))
		},
		"has 4 bytes, got 3":         func(w *gguf.Writer) { w.AddTensor("t", []int{1}, 0, make([]byte, 3)) },
		"blocks of 32":               func(w *gguf.Writer) { w.AddTensor("t", []int{31}, gguf.Q8_0, nil) },
		"0 bytes written":            func(w *gguf.Writer) { w.AddTensorFunc("t", []int{1}, 0, func(io.Writer) error { return nil }) },
		"type complex128":            func(w *gguf.Writer) { w.Set("k", 1i) },
		"general.alignment is 3":     func(w *gguf.Writer) { w.Set("general.alignment", 3) },
		"the writer has been flushe": func(w *gguf.Writer) { _ = w.Flush() },
	} {
		w := gguf.NewWriter(io.Discard)
		use(w)
		if err := w.Flush(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// FuzzParse checks for any bytes that Parse returns an error or a file all of whose
// accessors work.
func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	for _, b := range broken() {
		f.Add(b.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "byte ") && !strings.HasPrefix(err.Error(), "metadata key general.alignment") {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		for _, k := range file.Keys() {
			kind, elem, n, ok := file.Kind(k)
			if !ok {
				t.Fatalf("key %q has no kind", k)
			}
			file.String(k)
			file.Uint(k)
			file.Float(k)
			file.Bool(k)
			file.Ints(k)
			file.Floats(k)
			if ss, ok := file.Strings(k); kind == gguf.KindArray && elem == gguf.KindString && (!ok || len(ss) != n) {
				t.Fatalf("key %q: %d strings of %d", k, len(ss), n)
			}
		}
		for _, tt := range file.Tensors() {
			size, err := tt.Type.RowBytes(tt.Len())
			if err != nil || size != len(tt.Data) {
				t.Fatalf("tensor %q: %d bytes, want %d (%v)", tt.Name, len(tt.Data), size, err)
			}
			if tt.Type == gguf.F32 || tt.Type == gguf.Q8_0 {
				if _, err := tt.Floats(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
