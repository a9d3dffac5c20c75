//go:build unix

package engine_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/worker"
)

// TestSpoiledFiles damages files in several ways. The answer equals one from a computed prompt, the fault is logged and
// counted, and only the owner can read the files.
func TestSpoiledFiles(t *testing.T) {
	path := infertest.File(t, infertest.Spec{})
	asked := engine.Request{Prompt: history(1)}
	var want []sample.Choice
	for name, spoil := range map[string]func(b []byte) []byte{
		"a bit of a block":       func(b []byte) []byte { b[len(b)-5000] ^= 4; return b },
		"a bit of the first one": func(b []byte) []byte { b[4096] ^= 1; return b },
		"a bit of a name":        func(b []byte) []byte { b[95] ^= 1; return b },
		"a bit of the key":       func(b []byte) []byte { b[41] ^= 1; return b },
		"cut in a block":         func(b []byte) []byte { return b[:len(b)-1] },
		"cut in the header":      func(b []byte) []byte { return b[:50] },
		"empty":                  func([]byte) []byte { return nil },
		"longer":                 func(b []byte) []byte { return append(b, make([]byte, 8192)...) },
		"zeros":                  func(b []byte) []byte { return make([]byte, len(b)) },
		"another version":        func(b []byte) []byte { b[7] = '2'; return b },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			model := [32]byte{1}
			k := &talk{t: t, path: path, cfg: engine.Config{Keep: engine.Keep{
				Dir: t.TempDir(), Limit: 1 << 20, Model: &model, Log: slog.New(slog.NewTextHandler(&log, nil)),
			}}}
			k.begin()
			defer k.end()
			first, _ := k.turn(asked)
			if want == nil {
				want = first
			}
			k.end()
			kept := files(t, k.cfg.Keep.Dir)
			if len(kept) != 1 {
				t.Fatalf("%q are kept, want one file", kept)
			}
			if st, err := os.Stat(kept[0]); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v: want 0600", st.Mode(), err)
			}
			b, err := os.ReadFile(kept[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(kept[0], spoil(b), 0o600); err != nil {
				t.Fatal(err)
			}
			k.begin()
			made, cached := k.turn(asked)
			if diff := cmp.Diff(want, made); diff != "" {
				t.Errorf("(-never slept +now):\n%s", diff)
			}
			if cached == whole {
				t.Error("all of a spoiled file is used")
			}
			stats := settled(t, k.e)
			if stats.Kept.Refused != 1 || len(files(t, k.cfg.Keep.Dir)) != 0 {
				t.Errorf("%d files are refused, %q are left; want 1, and none", stats.Kept.Refused, files(t, k.cfg.Keep.Dir))
			}
			k.end()
			if !strings.Contains(log.String(), "is not used") || !strings.Contains(log.String(), kept[0]) {
				t.Errorf("the log: %s", log.String())
			}
		})
	}
}

// TestFolderForAll checks that a folder that others can open costs only the stored conversations.
func TestFolderForAll(t *testing.T) {
	model := [32]byte{1}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "conversations"), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	k := &talk{t: t, path: infertest.File(t, infertest.Spec{}), cfg: engine.Config{Keep: engine.Keep{
		Dir: dir, Limit: 1 << 20, Model: &model, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}}}
	k.begin()
	defer k.end()
	k.turn(engine.Request{Prompt: history(1)})
	k.sleep(2)
	k.end()
	if !strings.Contains(log.String(), "chmod 700") || len(files(t, dir)) > 0 {
		t.Errorf("%q are written, the log: %s", files(t, dir), log.String())
	}
}

// TestFullDisk checks that a full disk costs only the stored conversations. The limit that stands for it is the
// process's, and the log of go test would meet it too: so the test runs in a process of its own.
func TestFullDisk(t *testing.T) {
	const own = "ENGINE_TEST_FULL_DISK"
	if os.Getenv(own) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), own+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	model := [32]byte{1}
	k := &talk{t: t, path: infertest.File(t, infertest.Spec{}), cfg: engine.Config{Keep: engine.Keep{Dir: t.TempDir(), Limit: 1 << 20, Model: &model}}}
	k.begin()
	defer k.end()
	want, _ := k.turn(engine.Request{Prompt: history(1)})
	full := limitFiles(t, 10000)
	k.sleep(2)
	full()
	if got := k.e.Stats().Kept; got.Failed != 1 || got.Blocks != 0 || len(files(t, k.cfg.Keep.Dir)) > 0 {
		t.Errorf("a full disk: %+v, %q are left", got, files(t, k.cfg.Keep.Dir))
	}
	made, cached := k.turn(engine.Request{Prompt: history(1)})
	if diff := cmp.Diff(want, made); diff != "" || cached > 0 {
		t.Errorf("after a full disk: %d tokens are there (-before +now):\n%s", cached, diff)
	}
	k.sleep(2)
	if _, cached := k.turn(engine.Request{Prompt: history(1)}); cached != whole {
		t.Errorf("when the disk has room again: %d tokens are there, want %d", cached, whole)
	}
}

// limitFiles limits every file to n bytes, until the function is called. It simulates a full disk.
func limitFiles(t *testing.T, n uint64) (undo func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Error(err)
		}
	}
}

// TestWorkerDiesAsleep checks that blocks kept in a worker's memory are forgotten when it dies.
func TestWorkerDiesAsleep(t *testing.T) {
	k := &talk{t: t, path: infertest.File(t, infertest.Spec{}), launch: worker.Process{}.Launch, cfg: engine.Config{Keep: engine.Keep{Memory: 1 << 20}}}
	k.begin()
	defer k.end()
	want, _ := k.turn(engine.Request{Prompt: history(1)})
	if err := k.e.Sleep(t.Context(), 1, engine.SleepWait); err != nil {
		t.Fatal(err)
	}
	for _, pid := range k.e.Workers() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for {
		if _, err := k.e.Wake(t.Context()); err == nil {
			break
		} else if !strings.Contains(err.Error(), "ended") {
			t.Fatal(err)
		}
	}
	made, cached := k.turn(engine.Request{Prompt: history(1)})
	if diff := cmp.Diff(want, made); diff != "" || cached > 0 {
		t.Errorf("%d tokens are there (-before +now):\n%s", cached, diff)
	}
}
