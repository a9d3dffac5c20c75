package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOpenAINode runs the official JavaScript client. In CI its absence is a failure.
func TestOpenAINode(t *testing.T) {
	t.Parallel()
	missing := t.Skipf
	if os.Getenv("CI") != "" {
		missing = t.Fatalf
	}
	node, err := exec.LookPath("node")
	if err != nil {
		missing("node is not installed: %v", err)
	}
	if _, err := os.Stat(filepath.Join("clients", "node_modules", "openai")); err != nil {
		missing("the JavaScript client is not installed: run npm ci in e2e/clients")
	}
	p := newServer(t, "--model", "pico", "-f", absolute(t, fakes))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "openai.mjs", p.server.url)
	cmd.Dir = "clients"
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("the JavaScript client: %v", err)
	}
}
