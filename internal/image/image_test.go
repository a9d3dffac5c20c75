package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // as go run ./internal/image is called
		panic(err)
	}
	os.Exit(m.Run())
}

// TestFunctionImage builds the real image and looks at what a node would start.
func TestFunctionImage(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles two programs")
	}
	dir := t.TempDir()
	probe := filepath.Join(dir, "probe")
	build := exec.Command("go", "build", "-o", probe, "./e2e/fakeruntime")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "out", "images.tar")
	var stdout bytes.Buffer
	err := run(context.Background(), []string{"-o", file, "--tag", "v9", "--version", "v9.1", "--add", "dev.local/probe:v2=" + probe, "function"}, &stdout)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"dev.local/rouse-function:v9\n", "dev.local/probe:v2\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &stdout)
		}
	}
	tag, err := name.NewTag("dev.local/rouse-function:v9")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/rouse-function"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != "v9.1" {
		t.Errorf("version label %q, want v9.1", got)
	}
	if env := strings.Join(config.Config.Env, " "); !strings.Contains(env, "ROUSE_ENGINE_BINARY=/rouse") {
		t.Errorf("environment %q: the function does not find the engine", env)
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"acivator", `no image "acivator": there are activator, autoscaler, function`},
		{"--arch riscv64", "want amd64 or arm64"},
		{"--arch amd64,arm64", "a file holds one architecture"},
		{"--nope", "unknown flag"},
		{"--onto vlm=vllm/vllm-openai:v0.11.0", "runtimes are "},
		{"--onto ollama", "want RUNTIME=IMAGE"},
	} {
		err := run(context.Background(), strings.Fields(c.args), new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("image %s: error %v, want one with %q", c.args, err, c.want)
		}
	}
}
