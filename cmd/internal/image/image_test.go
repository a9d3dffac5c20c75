package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil { // as go run ./cmd/internal/image is called
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

// TestOnto puts the function in front of an image that a registry has, and pushes the result.
func TestOnto(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a program")
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	theirs, err := name.NewTag(host + "/them/ollama:v7")
	if err != nil {
		t.Fatal(err)
	}
	base, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(theirs, base); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	if err := run(t.Context(), []string{"--push", host + "/us", "--arch", "amd64", "--onto", "ollama=" + theirs.String()}, &stdout); err != nil {
		t.Fatal(err)
	}
	ours, err := name.NewTag(host + "/us/rouse-ollama:v1")
	if err != nil {
		t.Fatal(err)
	}
	if got := stdout.String(); !strings.HasPrefix(got, ours.String()+"@sha256:") || strings.Count(got, "\n") != 1 {
		t.Errorf("output %q, want one line with the image and its digest", got)
	}
	img, err := remote.Image(ours, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if env := config.Config.Env; !slices.Contains(env, "ROUSE_RUNTIME=ollama") || config.Config.Entrypoint[0] != "/usr/local/bin/rouse-function" {
		t.Errorf("entrypoint %v, environment %v: want the function, for Ollama", config.Config.Entrypoint, env)
	}
	if layers, err := img.Layers(); err != nil || len(layers) != 3 {
		t.Errorf("%d layers (%v), want their 2 and ours", len(layers), err)
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
