package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// absent skips a test for want of something that CI always has; there it fails.
func absent(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// runNode runs a script of the clients' folder with the official JavaScript clients.
func runNode(ctx context.Context, t *testing.T, script string, args ...string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		absent(t, "node is not installed: %v", err)
	}
	for _, client := range []string{"openai", "ollama", "@anthropic-ai/sdk", "ai", "@langchain/openai"} {
		if _, err := os.Stat(filepath.Join("clients", "node_modules", client)); err != nil {
			absent(t, "the JavaScript clients are not installed: run npm ci in e2e/clients")
		}
	}
	cmd := exec.CommandContext(ctx, node, append([]string{script}, args...)...)
	cmd.Dir = "clients"
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("%s: %v", script, err)
	}
}

// TestOpenAINode runs the official JavaScript client.
func TestOpenAINode(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico", "-f", absolute(t, fakes))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	runNode(ctx, t, "openai.mjs", p.server.url)
}

// TestAnthropicNode runs Anthropic's official JavaScript client against the engine, for which its API is translated.
func TestAnthropicNode(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	runNode(ctx, t, "anthropic.mjs", p.server.url)
}

// TestResponsesNode asks the engine for responses, which are translated for it, with OpenAI's official JavaScript client.
func TestResponsesNode(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	runNode(ctx, t, "responses.mjs", p.server.url)
}

// TestBatchesNode leaves files and batches with OpenAI's official JavaScript client.
func TestBatchesNode(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico", "--store", "store")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	runNode(ctx, t, "batches.mjs", p.server.url)
}

// TestMessageBatchesNode leaves batches with Anthropic's official JavaScript client.
func TestMessageBatchesNode(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico", "--store", "store")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	runNode(ctx, t, "messagebatches.mjs", p.server.url)
}

// TestOthersNode runs clients that others have built on the official ones.
func TestOthersNode(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	runNode(ctx, t, "others.mjs", p.server.url)
}

// TestOllamaEngineNode asks a function on the engine with Ollama's official JavaScript client.
func TestOllamaEngineNode(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	runNode(ctx, t, "ollama_engine.mjs", p.server.url)
}

// TestThoughtsNode asks a model that thinks, in all APIs.
func TestThoughtsNode(t *testing.T) {
	t.Parallel()
	model := filepath.Join(t.TempDir(), "thinks.gguf")
	if out, err := exec.Command(filepath.Join(bin, "tinygguf"), "-words", "8", "-think", "3", "-o", model).CombinedOutput(); err != nil {
		t.Fatalf("make the model: %v\n%s", err, out)
	}
	p := newServer(t, "--model", "thinks="+model)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	runNode(ctx, t, "thoughts.mjs", p.server.url)
}

// clientsGo builds the tests of Go's clients, once. With empty caches that takes minutes, which no deadline of a test counts.
var clientsGo = sync.OnceValues(func() (program string, err error) {
	program = filepath.Join(bin, "clients.test")
	cmd := exec.Command("go", "test", "-c", "-o", program, ".")
	cmd.Dir = filepath.Join("clients", "go")
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -trimpath")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build the clients in Go: %w\n%s", err, out)
	}
	return program, err
})

// runGo runs tests of Go's clients against a server whose function pico runs on that runtime.
func runGo(t *testing.T, url, runtime string) {
	t.Helper()
	program, err := clientsGo()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.v")
	cmd.Env = append(os.Environ(), "ROUSE_CLIENTS_URL="+url, "ROUSE_CLIENTS_RUNTIME="+runtime)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("clients in Go: %v", err)
	}
}

// TestClientsGo runs the clients in Go of all APIs against the engine.
func TestClientsGo(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--model", "pico", "--store", "store")
	runGo(t, p.server.url, "engine")
}
