package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
)

// smi puts a program called nvidia-smi into PATH.
func smi(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestGPUMemory: a process and its descendants count, on the device where they hold most; invalid lines do not count.
func TestGPUMemory(t *testing.T) {
	pid := os.Getpid()
	for _, tt := range []struct {
		name, says string // P: this process
		want       api.Bytes
		found      bool
	}{
		{"one", "P, GPU-a, 512", 512 * api.MiB, true},
		{"another's", "1, GPU-a, 700\nP, GPU-a, 512\n", 512 * api.MiB, true},
		{"two processes of two devices", "P, GPU-a, 512\nP, GPU-b, 300\nP, GPU-b, 300\n", 600 * api.MiB, true},
		{"nobody", "", 0, false},
		{"others alone", "1, GPU-a, 700", 0, false},
		{"no number", "P, GPU-a, [N/A]", 0, false},
		{"below nothing", "P, GPU-a, -7", 0, false},
		{"beyond everything", "P, GPU-a, 9223372036854775807", 0, false},
		{"something else", "No devices were found\nP, 3", 0, false},
		{"nothing held", "P, GPU-a, 0", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			smi(t, "cat <<'X'\n"+strings.ReplaceAll(tt.says, "P", fmt.Sprint(pid))+"\nX")
			got, found, err := process.GPUMemory(t.Context(), pid)
			if err != nil || got != tt.want || found != tt.found {
				t.Errorf("%s, found %v (%v); want %s, %v", got, found, err, tt.want, tt.found)
			}
		})
	}
}

// TestGPUMemoryOfWhoCannotSay: a program that fails or never answers is an error, in time.
func TestGPUMemoryOfWhoCannotSay(t *testing.T) {
	smi(t, "exit 9")
	if _, _, err := process.GPUMemory(t.Context(), os.Getpid()); err == nil || !strings.Contains(err.Error(), "exit status 9") {
		t.Errorf("one that fails: %v", err)
	}
	smi(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := process.GPUMemory(ctx, os.Getpid()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that hangs: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, _, err := process.GPUMemory(t.Context(), os.Getpid()); err == nil {
		t.Error("none: no error")
	}
}
