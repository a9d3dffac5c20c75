package gguf_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// TestSplit checks that a model in several files has the tensors of the original, and that an incomplete one is refused.
func TestSplit(t *testing.T) {
	data, err := infertest.Bytes(infertest.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	parts := infertest.Split(t, data, filepath.Join(dir, "m"), 3)
	f, err := gguf.Open(parts[0])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole.Tensors(), f.Tensors()); diff != "" {
		t.Error(diff)
	}
	for _, want := range whole.Tensors() {
		if got, ok := f.Tensor(want.Name); !ok || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%s is %v", want.Name, ok)
		}
	}
	for _, p := range parts[1:] {
		other, err := gguf.Open(p)
		if err != nil || other.Fingerprint() != f.Fingerprint() || other.Close() != nil {
			t.Errorf("by the name of %s: %v", p, err)
		}
	}
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	if last := whole.Tensors()[len(whole.Tensors())-1]; !bytes.Equal(f.Tensors()[len(f.Tensors())-1].Data, last.Data) {
		t.Error("after Release the last part has other bytes")
	}
	size := int64(0)
	for _, p := range parts {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if f.Size() != size {
		t.Errorf("got %d bytes, want %d", f.Size(), size)
	}
	mark := f.Fingerprint()
	if err := f.Close(); err != nil || f.Size() != 0 {
		t.Errorf("closed: %d bytes, %v", f.Size(), err)
	}

	raw, err := os.ReadFile(parts[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gguf.Parse(raw); err == nil || !strings.Contains(err.Error(), "one of 3 files") {
		t.Errorf("a part in memory: got %v", err)
	}
	link := func(from int, name string) string {
		t.Helper()
		to := filepath.Join(dir, name)
		if err := os.Link(parts[from], to); err != nil {
			t.Fatal(err)
		}
		return to
	}
	foreign := func(stem string, at int, layers int) string {
		t.Helper()
		other, err := infertest.Bytes(infertest.Spec{Layers: layers})
		if err != nil {
			t.Fatal(err)
		}
		paths := infertest.Split(t, other, filepath.Join(dir, stem), 3)
		for i, p := range paths {
			if i != at {
				if err := errors.Join(os.Remove(p), os.Link(parts[i], p)); err != nil {
					t.Fatal(err)
				}
			}
		}
		return paths[0]
	}
	four := infertest.Split(t, data, filepath.Join(dir, "four"), 4)
	for _, tt := range []struct{ name, path, want string }{
		{"another name", link(0, "model.gguf"), "call them NAME-00001-of-00003.gguf"},
		{"of another count", link(0, "n-00001-of-00002.gguf"), "call them NAME-00001-of-00003.gguf"},
		{"a whole model", func() string {
			path := filepath.Join(dir, "w-00001-of-00002.gguf")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}(), "by its name it is one of 2 files, but " + filepath.Join(dir, "w-00001-of-00002.gguf") + " is a complete model"},
		{"a missing part", link(0, "o-00001-of-00003.gguf"), "o-00002-of-00003.gguf: no such file or directory (it is file 2 of the model's 3: put all into one folder)"},
		{"a missing first part", link(1, "r-00002-of-00003.gguf"), "it is file 1 of the model's 3"},
		{"a part twice", func() string {
			link(0, "s-00001-of-00003.gguf")
			link(1, "s-00002-of-00003.gguf")
			return link(1, "s-00003-of-00003.gguf")
		}(), "s-00003-of-00003.gguf has the metadata of file 2 of 3, and the name of 3 of 3"},
		{"parts in another order", func() string {
			link(2, "p-00002-of-00003.gguf")
			return link(0, "p-00001-of-00003.gguf")
		}(), "file 3 of 3, and the name of 2 of 3"},
		{"a part of another model", func() string {
			first := link(0, "q-00001-of-00003.gguf")
			link(1, "q-00002-of-00003.gguf")
			if err := os.Link(four[2], filepath.Join(dir, "q-00003-of-00003.gguf")); err != nil {
				t.Fatal(err)
			}
			return first
		}(), "file 3 of 4, and the name of 3 of 3"},
		{"a part of another model of as many", foreign("t", 2, 1), "tensor \"blk.0.ffn_gate.weight\" of " + filepath.Join(dir, "t-00003-of-00003.gguf") + " is in a file before it too"},
		{"a part of another model with other tensors", foreign("u", 2, 3), "have 23 tensors together"},
	} {
		if _, err := gguf.Open(tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}

	last, err := os.ReadFile(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	weights := whole.Tensors()[len(whole.Tensors())-1].Data
	at := bytes.LastIndex(last, weights) + len(weights)/2
	last[at] ^= 1
	write := func(b []byte) {
		t.Helper()
		if err := errors.Join(os.Remove(parts[2]), os.WriteFile(parts[2], b, 0o600)); err != nil { // the others are links to the old one
			t.Fatal(err)
		}
	}
	write(last)
	other, err := gguf.Open(parts[0])
	if err != nil {
		t.Fatal(err)
	}
	if other.Fingerprint() == mark {
		t.Error("another last part has the same fingerprint")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	write(last[:at])
	if _, err := gguf.Open(parts[0]); err == nil || !strings.Contains(err.Error(), parts[2]+": byte") {
		t.Errorf("a part that is cut: got %v", err)
	}
}
