package cpu_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// tiled is a model whose matrices are in a tile file, however small.
type tiled struct {
	path string
	cfg  cpu.Config
	log  *bytes.Buffer
	it   infer.Item
	want []float32
}

func newTiled(t *testing.T) *tiled {
	s := infertest.Spec{Type: gguf.Q8_0, Untied: true}
	f := &tiled{path: infertest.File(t, s), log: &bytes.Buffer{}}
	f.cfg = cpu.Config{Threads: 2, TileDir: filepath.Join(t.TempDir(), "a", "tiles"), TileFrom: 1, Log: slog.New(slog.NewTextHandler(f.log, nil))}
	f.it = infer.Item{Tokens: tokens(20, 400, 1), Blocks: blocks(0, 2), Want: infer.Last}
	f.want = forward(t, open(t, f.path, cpu.Config{TileDir: "/nowhere"}), f.it)[0]
	return f
}

// check opens the model and compares its logits.
func (f *tiled) check(t *testing.T) *cpu.Runner {
	t.Helper()
	f.log.Reset()
	r := open(t, f.path, f.cfg)
	if !slices.Equal(forward(t, r, f.it)[0], f.want) {
		t.Error("other logits than with matrices packed in memory")
	}
	return r
}

// files lists the tile files.
func (f *tiled) files(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(f.cfg.TileDir, "*.tiles"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func (f *tiled) expectLog(t *testing.T, want string) {
	t.Helper()
	if got := f.log.String(); want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("log: got %q, want %q in it", got, want)
	}
}

// TestSplit checks that a model in several files computes the same as in one, bit for bit, and that another part
// makes another model.
func TestSplit(t *testing.T) {
	f := newTiled(t)
	data, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	parts := infertest.Split(t, data, filepath.Join(t.TempDir(), "split"), 3)
	f.path = parts[0]
	r := f.check(t)
	f.expectLog(t, "the model was packed")
	if err := r.Sleep(2); err != nil {
		t.Fatal(err)
	}
	if err := r.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(forward(t, r, f.it)[0], f.want) {
		t.Error("other logits after a sleep")
	}
	f.check(t)
	f.expectLog(t, "")
	now := time.Now().Add(time.Hour)
	if err := os.Chtimes(parts[2], now, now); err != nil {
		t.Fatal(err)
	}
	f.check(t)
	f.expectLog(t, "the model was packed")
}

// TestTileFile checks that the file is made once, and again if it is damaged in any way or the model changed.
func TestTileFile(t *testing.T) {
	f := newTiled(t)
	f.check(t)
	f.expectLog(t, "the model was packed")
	f.check(t)
	f.expectLog(t, "")
	file := f.files(t)[0]
	for path, want := range map[string]os.FileMode{file: 0o400, f.cfg.TileDir: 0o700} { // others may not read weights, and nobody may write them
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(b []byte) []byte{
		"truncated":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":         func([]byte) []byte { return nil },
		"longer":        func(b []byte) []byte { return append(b, 0) },
		"magic":         func(b []byte) []byte { b[0]++; return b },
		"key":           func(b []byte) []byte { b[50]++; return b },
		"a sample":      func(b []byte) []byte { b[4096+100]++; return b },
		"end of header": func(b []byte) []byte { b[4095] = 1; return b },
		"zeros":         func(b []byte) []byte { clear(b[4096:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, damage(slices.Clone(good)), 0o600)); err != nil {
				t.Fatal(err)
			}
			f.check(t)
			f.expectLog(t, "is damaged")
			if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, good) {
				t.Errorf("the file is not as it was: %v", err)
			}
		})
	}
	now := time.Now().Add(time.Hour)
	if err := os.Chtimes(f.path, now, now); err != nil {
		t.Fatal(err)
	}
	f.check(t)
	if n := len(f.files(t)); n != 2 {
		t.Errorf("%d files after the model changed, want 2", n)
	}
}

// TestTilesUnwritable checks that the model works from memory if the file can't be written.
func TestTilesUnwritable(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, f *tiled){
		"folder is a file": func(_ *testing.T, f *tiled) { f.cfg.TileDir = f.path },
		"beyond the limit": func(_ *testing.T, f *tiled) { f.cfg.TileLimit = 1000 },
		"full disk": func(t *testing.T, f *tiled) {
			f.cfg.TileDir = t.TempDir()
			if err := unix.Mount("full", f.cfg.TileDir, "tmpfs", 0, "size=64k"); err != nil {
				t.Skip("no file system can be mounted here:", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(f.cfg.TileDir, unix.MNT_DETACH) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTiled(t)
			spoil(t, f)
			r := f.check(t)
			f.expectLog(t, "cannot be kept in a file")
			if err := errors.Join(r.Sleep(1), r.Wake(t.Context())); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(forward(t, r, f.it)[0], f.want) {
				t.Error("after sleep: other logits")
			}
			if left, err := filepath.Glob(filepath.Join(f.cfg.TileDir, "*.tiles*")); err != nil || slices.ContainsFunc(left, func(n string) bool { return !strings.HasSuffix(n, ".lock") }) {
				t.Errorf("half a file is left: %v, %v", left, err)
			}
		})
	}
}

// TestTileLimit checks that the least recently used file is removed, and unfinished files.
func TestTileLimit(t *testing.T) {
	f := newTiled(t)
	f.check(t)
	first := f.files(t)[0]
	st, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	stray := filepath.Join(f.cfg.TileDir, "x.tiles.1.tmp")
	if err := errors.Join(os.WriteFile(stray, nil, 0o600), os.Chtimes(stray, old, old), os.Chtimes(first, old, old)); err != nil {
		t.Fatal(err)
	}
	f.cfg.TileLimit = 5 * st.Size() / 2
	kept := f.path
	for seed := range uint64(2) {
		f.path = infertest.File(t, infertest.Spec{Type: gguf.Q8_0, Untied: true, Seed: seed + 7})
		open(t, f.path, f.cfg)
		if seed == 0 { // use makes the first one young
			open(t, kept, f.cfg)
			if len(f.files(t)) != 2 {
				t.Fatalf("files: %v", f.files(t))
			}
		}
	}
	if _, err := os.Stat(first); err != nil || len(f.files(t)) != 2 {
		t.Errorf("files %v: want two, with the one used last: %v", f.files(t), err)
	}
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a stray file stays: %v", err)
	}
}

// TestTilesTogether opens the model many times at once, and checks that it is packed once.
func TestTilesTogether(t *testing.T) {
	f := newTiled(t)
	f.cfg.Log = nil
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() { open(t, f.path, f.cfg) })
	}
	wg.Wait()
	if n := len(f.files(t)); n != 1 {
		t.Errorf("%d files, want 1", n)
	}
	f.cfg.Log = slog.New(slog.NewTextHandler(f.log, nil))
	f.check(t)
}

// TestTilesTruncatedWhileMapped checks that missing pages are an error of the step, not the end of
// the process, and that the next wake makes the file again.
func TestTilesTruncatedWhileMapped(t *testing.T) {
	for _, threads := range []int{1, 3} {
		f := newTiled(t)
		f.cfg.Threads = threads
		r := f.check(t)
		if err := errors.Join(os.Chmod(f.files(t)[0], 0o600), os.Truncate(f.files(t)[0], 8192)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, err := r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{f.it}})
			if err == nil || !strings.Contains(err.Error(), "a mapped file could not be read") {
				t.Fatalf("forward: got %v", err)
			}
		}
		if err := errors.Join(r.Sleep(1), r.Wake(t.Context())); err != nil {
			t.Fatal(err)
		}
		f.expectLog(t, "a tile file has changed")
		if !slices.Equal(forward(t, r, f.it)[0], f.want) {
			t.Error("after wake: other logits")
		}
	}
}

// TestModelTruncatedWhilePacked truncates a model file after its header was read.
func TestModelTruncatedWhilePacked(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Type: gguf.Q8_0})
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 65536); err != nil {
		t.Fatal(err)
	}
	if _, err := cpu.New(f, cpu.Config{}); err == nil || !strings.Contains(err.Error(), "could not be read") {
		t.Errorf("got %v", err)
	}
}

// TestCancelInTheMiddle checks that a step ends between two layers, and can be repeated.
func TestCancelInTheMiddle(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Layers: 40})
	r := open(t, path, cpu.Config{Threads: 2})
	it := infer.Item{Tokens: tokens(200, 400, 1), Blocks: blocks(0, 13), Want: infer.Last}
	want := forward(t, r, it)[0]
	cause := errors.New("enough")
	for d := 10 * time.Microsecond; d < 20*time.Millisecond; d *= 2 {
		ctx, stop := context.WithTimeoutCause(t.Context(), d, cause)
		out, err := r.Forward(ctx, &infer.Batch{Items: []infer.Item{it}})
		stop()
		if err == nil && !slices.Equal(out.Logits[0], want) || err != nil && !errors.Is(err, cause) {
			t.Fatalf("after %v: %v, or other logits", d, err)
		}
	}
	if !slices.Equal(forward(t, r, it)[0], want) {
		t.Error("repeated: other logits")
	}
}

// TestLongContext checks that attention over several spans has the same bits with any number of threads.
func TestLongContext(t *testing.T) {
	for name, s := range map[string]infertest.Spec{
		"one kv head": {Dim: 256, Heads: 8, KVHeads: 1, HeadDim: 32},
		"window":      {Dim: 256, Heads: 4, KVHeads: 1, HeadDim: 64, Window: 400, Arch: "gemma3"},
	} {
		t.Run(name, func(t *testing.T) {
			s.Context = 2000
			path := infertest.File(t, s)
			seq := tokens(1500, 400, 1)
			var want []float32
			for threads := 1; threads <= 4; threads++ {
				r := open(t, path, cpu.Config{Threads: threads})
				forward(t, r, infer.Item{Tokens: seq[:1490+threads], Blocks: blocks(0, 94)})
				got := forward(t, r, infer.Item{Tokens: seq[1490+threads:], Pos: 1490 + threads, Blocks: blocks(0, 94), Want: infer.Last})[0]
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("%d threads: other bits", threads)
				}
			}
		})
	}
}

// TestNoMemory checks that failed allocations are a clear error, at open and at wake. It runs in
// a process of its own, whose address space is limited.
func TestNoMemory(t *testing.T) {
	if os.Getenv("CPU_TEST_MODEL") == "" {
		path := infertest.File(t, infertest.Spec{Context: 1 << 16})
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoMemory$")
		cmd.Env = append(os.Environ(), "CPU_TEST_MODEL="+path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	cfg := cpu.Config{Threads: 2, CacheBytes: 1 << 40, Sequences: 1 << 12} // 256 GiB
	r := open(t, os.Getenv("CPU_TEST_MODEL"), cfg)
	it := infer.Item{Tokens: []int32{1}, Blocks: []int32{0}, Want: infer.Last}
	want := forward(t, r, it)[0]
	if err := r.Sleep(1); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: 64 << 30, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &low); err != nil {
		t.Skip("the address space cannot be limited:", err)
	}
	if err := r.Wake(t.Context()); !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "lower CacheBytes") {
		t.Errorf("wake: got %v", err)
	}
	if _, err := r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{it}}); !errors.Is(err, infer.ErrAsleep) {
		t.Errorf("after a wake that failed: got %v, want ErrAsleep", err)
	}
	if _, err := cpu.Open(os.Getenv("CPU_TEST_MODEL"), cfg); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("open: got %v", err)
	}
	if err := errors.Join(unix.Setrlimit(unix.RLIMIT_AS, &limit), r.Wake(t.Context())); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(forward(t, r, it)[0], want) {
		t.Error("after wake: other logits")
	}
}
