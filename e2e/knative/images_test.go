package knative

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/rouse-dev/rouse/e2e/cluster"
	"github.com/rouse-dev/rouse/internal/pack"
)

// haveOllama says whether there is an image of Ollama.
var haveOllama bool

// loadImages builds what the tests run and loads it into the node.
func loadImages(ctx context.Context, c *cluster.Cluster) error {
	dir, err := os.MkdirTemp("", "rouse-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	product := filepath.Join(dir, "rouse.tar")
	if err := run(ctx, nil, "go", "run", "./cmd/internal/image", "-o", product); err != nil {
		return err
	}
	tests := filepath.Join(dir, "tests.tar")
	if err := packTests(ctx, dir, tests); err != nil {
		return err
	}
	return c.Load(ctx, product, tests)
}

// packTests packs what only tests run: the function with a simulated vLLM and
// with a real Ollama in its image, one of one's own, and a program that is no function.
func packTests(ctx context.Context, dir, out string) error {
	for program, from := range map[string]string{
		"rouse": "cmd/rouse", "vllmsim": "e2e/vllmsim/cmd/vllmsim", "tinygguf": "e2e/tinygguf", "testserver": "e2e/knative/testserver",
	} {
		if err := run(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, program), "./"+from); err != nil {
			return err
		}
	}
	function := func(name string, programs map[string]string) pack.Image {
		programs["/rouse"] = filepath.Join(dir, "rouse")
		return pack.Image{Name: "dev.local/" + name + ":v1", Arch: runtime.GOARCH, Programs: programs, Entrypoint: []string{"/rouse", "function"}}
	}
	server := filepath.Join(dir, "testserver")
	images := []pack.Image{
		function("rouse-vllmsim", map[string]string{
			"/usr/local/bin/vllm": filepath.Join(dir, "vllmsim"), "/usr/local/bin/nvidia-smi": filepath.Join(dir, "vllmsim"),
		}),
		{
			Name: "dev.local/rouse-greeter:v1", Arch: runtime.GOARCH, Env: []string{"ROUSE_ENGINE_BINARY=/rouse"},
			Programs: map[string]string{"/greeter": server, "/rouse": filepath.Join(dir, "rouse")}, Entrypoint: []string{"/greeter"},
		},
		pack.Program(anyServer, runtime.GOARCH, server),
		{Name: anyVLLM, Arch: runtime.GOARCH, Entrypoint: []string{"vllm", "serve"}, Programs: map[string]string{
			"/usr/local/bin/vllm": filepath.Join(dir, "vllmsim"), "/usr/local/bin/nvidia-smi": filepath.Join(dir, "vllmsim"),
		}},
		pack.Program("dev.local/foreign:v1", runtime.GOARCH, server),
	}
	ollama, err := ollamaFiles(ctx, dir)
	if err != nil {
		return err
	}
	if haveOllama = ollama != nil; haveOllama {
		images = append(images, function("rouse-ollama", ollama))
	}
	return pack.Write(out, images)
}

// ollamaFiles are the real Ollama with the libraries that it is linked with, and a
// model; nil where nobody has built it.
func ollamaFiles(ctx context.Context, dir string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, root+"/e2e/ollama/build", "-path").Output()
	if err != nil {
		return nil, fmt.Errorf("look for Ollama: %w", err)
	}
	program := strings.TrimSpace(string(out))
	if _, err := os.Stat(program); err != nil {
		return nil, nil // it was not built
	}
	model := filepath.Join(dir, "tiny.gguf")
	if err := run(ctx, nil, filepath.Join(dir, "tinygguf"), "-words", "8", "-o", model); err != nil {
		return nil, err
	}
	files := map[string]string{"/usr/local/bin/ollama": program, "/models/tiny.gguf": model}
	libraries, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}
	for _, library := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(libraries), -1) {
		files[library[1]] = library[1]
	}
	return maps.Clone(files), nil
}

// run runs a command at the root of the module; the error has what it printed.
func run(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
