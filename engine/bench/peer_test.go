//go:build unix

package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program writes a script in place of a benchmark of llama.cpp, and returns a peer that runs it.
func program(t *testing.T, script string) peer {
	t.Helper()
	path := filepath.Join(t.TempDir(), "llama-bench")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	p, _ := findPeer(filepath.Dir(path), "m.gguf", 1)
	return p
}

// TestPeer: the better of llama.cpp's two kinds of attention counts.
func TestPeer(t *testing.T) {
	p := program(t, `case "$*" in *"-fa 1"*) echo '{"avg_ts":7.5}';; *) echo text; echo '{"avg_ts":5}';; esac`)
	if best, err := p.run(t.Context(), &test{prompt: 8, n: 1}); best != 7.5 || err != nil {
		t.Errorf("%v, %v, want 7.5", best, err)
	}
}

// TestPeerThatDoesNotEnd: a program that does not end is killed, and the error says so.
func TestPeerThatDoesNotEnd(t *testing.T) {
	p := program(t, "while :; do :; done")
	p.limit = time.Millisecond
	if _, err := p.run(t.Context(), &test{prompt: 8, n: 1}); err == nil || !strings.Contains(err.Error(), "llama-bench, for at most 1ms: ") {
		t.Errorf("%v, want an error that says for how long it may run", err)
	}
}
