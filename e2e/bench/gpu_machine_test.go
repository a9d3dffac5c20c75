package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// fakeTorch is a package torch with a device that does what FAKE says.
const fakeTorch = `
import os
fake = os.environ["FAKE"]
__version__ = "2.9.0"
uint8 = None
class version: cuda = None if fake == "built without" else "12.8"
class Tensor:
    def zero_(self): return self
    def copy_(self, other, non_blocking=False): return self
def empty(size, dtype=None, device=None, pin_memory=False):
    if pin_memory and fake == "no pinning": raise RuntimeError("CUDA error: out of memory\nmore")
    if device == "cuda" and fake == "taken": raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nmore")
    return Tensor()
class cuda:
    @staticmethod
    def is_available(): return fake not in ("built without", "old driver")
    @staticmethod
    def init(): raise RuntimeError("The NVIDIA driver on your system is too old\nmore")
    @staticmethod
    def synchronize(): pass
    @staticmethod
    def mem_get_info(): return (70 << 30, 80 << 30)
    @staticmethod
    def get_device_properties(i):
        class p: name, major, minor = "NVIDIA H100 80GB HBM3", 9, 0
        return p
`

// fakeSMI answers as nvidia-smi does, for what FAKE says.
const fakeSMI = `#!/bin/sh
case "$FAKE $*" in
*"no nvidia-smi "*) echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver." ; exit 9 ;;
*driver_version*) echo 570.86.15 ;;
MIG*mig.mode*) echo Enabled ;;
*mig.mode*) echo Disabled ;;
MIG*) echo "GPU-1, [N/A]" ;;
"odd "*) echo "what is this" ;;
*) echo "GPU-1, 10240" ;;
esac
`

// machine makes python3 and nvidia-smi that are fakes, and a run that finds them.
func gpuMachine(t *testing.T, fake string) *gpuBench {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "torch"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"torch/__init__.py": fakeTorch, "nvidia-smi": fakeSMI} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("PYTHONPATH", dir)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	t.Setenv("FAKE", fake)
	return &gpuBench{python: python, device: "cuda", dir: dir}
}

// TestMachine looks at machines on which something is missing or in the way, and wants a reason for all that can't go on, and notes for the rest.
func TestMachine(t *testing.T) {
	for _, tt := range []struct {
		fake               string
		err, torch, device string // in the error; in why torch is of no use; the device's name
		notes              string
	}{
		{fake: "all is well", device: "H100", notes: "others are on it"},
		{fake: "no pinning", device: "H100", notes: "can't be pinned: CUDA error: out of memory"},
		{fake: "MIG", device: "H100", notes: "MIG mode is on"},
		{fake: "built without", torch: "built without CUDA"},
		{fake: "old driver", torch: "driver on your system is too old"},
		{fake: "taken", torch: "busy or unavailable", device: "H100"},
		{fake: "old driver, no nvidia-smi", torch: "", err: "--small"},
	} {
		t.Run(tt.fake, func(t *testing.T) {
			if tt.err != "" {
				tt.fake = "no nvidia-smi" // and torch has a device that can't be used
			}
			b := gpuMachine(t, tt.fake)
			if tt.err != "" {
				b.python = brokenPython(t, b.python)
			}
			err := b.look(t.Context())
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			if why := b.torch(); (why == nil) != (tt.torch == "" && tt.err == "") || why != nil && !strings.Contains(why.Error(), tt.torch) {
				t.Errorf("torch: %v, want %q", why, tt.torch)
			}
			if !strings.Contains(b.facts.Name, tt.device) || !strings.Contains(strings.Join(b.notes, "; "), tt.notes) {
				t.Errorf("%q, %q; want %q, %q", b.facts.Name, b.notes, tt.device, tt.notes)
			}
		})
	}
}

// brokenPython is an interpreter without torch.
func brokenPython(t *testing.T, python string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nPYTHONPATH= exec "+python+" -S -I \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSMI reads what nvidia-smi says, and skips what depends on it where it does not say it.
func TestSMI(t *testing.T) {
	for fake, want := range map[string]string{"all is well": "", "MIG": "[N/A]", "odd": "what is this", "no nvidia-smi": "couldn't communicate"} {
		t.Run(fake, func(t *testing.T) {
			gpuMachine(t, fake)
			used, err := smi(t.Context(), nil)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if err == nil && used["GPU-1"] != 10<<30 {
				t.Errorf("%v are used", used)
			}
			var m missing
			if skipped := errors.As(err, &m); skipped != (fake == "MIG") {
				t.Errorf("skipped: %t, %v", skipped, err)
			}
		})
	}
}

// TestGoOn lets something of a part fail: the rest goes on, the figures stay, and the part has failed with the reasons.
func TestGoOn(t *testing.T) {
	over, stop := context.WithCancel(t.Context())
	stop()
	bad := errors.New("a kernel does not take it")
	for _, tt := range []struct {
		name        string
		do          func(*gpuPart) error
		fails, says string
	}{
		{"all ran", func(p *gpuPart) error { p.add("x", "s", 1); return p.goOn(t.Context(), nil) }, "", ""},
		{"one failed", func(p *gpuPart) error {
			if err := p.goOn(t.Context(), bad); err != nil {
				return err
			}
			p.beside("x", "s", 1, 1/zero, "by the bus") // a rate that is not known is no limit
			return nil
		}, "does not take it", "p: failed"},
		{"one failed, then all", func(p *gpuPart) error { _ = p.goOn(t.Context(), bad); return errors.New("the end") }, "the end", "the end"},
		{"one is missing", func(p *gpuPart) error { p.add("x", "s", 1); return p.goOn(t.Context(), lacks("no room")) }, "", "p: left out: no room"},
		{"all is missing", func(*gpuPart) error { return lacks("no room") }, "", "p: skipped: no room"},
		{"its time is over", func(p *gpuPart) error { return p.goOn(over, bad) }, "does not take it", "failed"},
	} {
		said := ""
		p := &gpuPart{name: "p", say: func(note string) { said += note }, row: func(ms ...report.Measurement) {
			for _, m := range ms {
				if m.Baseline != nil || m.Name != "p: x" || m.Rouse.P50 != 1 {
					t.Errorf("%s: %+v", tt.name, m)
				}
			}
		}}
		err := p.end(tt.do(p))
		if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) || !strings.Contains(said, tt.says) {
			t.Errorf("%s: %v, %q; want %q, %q", tt.name, err, said, tt.fails, tt.says)
		}
	}
}

var zero = 0.0
