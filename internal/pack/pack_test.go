package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// program builds a static program and returns its file.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(\"hello\") }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "hello")
	cmd := exec.Command("go", "build", "-trimpath", "-o", file, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a program: %v\n%s", err, out)
	}
	return file
}

func write(t *testing.T, images ...Image) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images.tar")
	if err := Write(file, images); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestImage reads an image as docker load does.
func TestImage(t *testing.T) {
	image := Program("dev.local/hello:v1", "amd64", program(t))
	image.Labels = map[string]string{"org.opencontainers.image.version": "v1"}
	tag, err := name.NewTag("dev.local/hello:v1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(write(t, image), &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := config.Config.User, "65532:65532"; got != want {
		t.Errorf("user %q, want %q: runAsNonRoot needs a number", got, want)
	}
	if diff := cmp.Diff([]string{"/hello"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	if got, want := config.Config.Labels["org.opencontainers.image.version"], "v1"; got != want {
		t.Errorf("version %q, want %q", got, want)
	}
	if config.OS != "linux" || config.Architecture != "amd64" {
		t.Errorf("platform %s/%s, want linux/amd64", config.OS, config.Architecture)
	}
	files := contents(t, img)
	for at, want := range map[string]tar.Header{
		"tmp/":              {Mode: 0o1777},
		"home/nonroot/":     {Mode: 0o700, Uid: 65532, Gid: 65532},
		"etc/passwd":        {Mode: 0o644},
		"etc/nsswitch.conf": {Mode: 0o644},
		"hello":             {Mode: 0o755},
	} {
		got, found := files[at]
		if !found {
			t.Errorf("%s is not in the image", at)
		} else if got.Mode != want.Mode || got.Uid != want.Uid || got.Gid != want.Gid {
			t.Errorf("%s: mode %o, owner %d:%d; want %o, %d:%d", at, got.Mode, got.Uid, got.Gid, want.Mode, want.Uid, want.Gid)
		}
	}
	for at, h := range files {
		if at != "home/nonroot/" && at != "tmp/" && (h.Uid != 0 || h.Mode&0o022 != 0) {
			t.Errorf("%s: the program's own account can write it (mode %o, owner %d)", at, h.Mode, h.Uid)
		}
	}
}

// contents returns the files in the layers.
func contents(t *testing.T, img v1.Image) map[string]*tar.Header {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*tar.Header{}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for tr := tar.NewReader(r); ; {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			files[h.Name] = h
		}
	}
	return files
}

// TestBothLayoutsNameTheSame compares docker save's manifest with OCI's index.
func TestBothLayoutsNameTheSame(t *testing.T) {
	file := program(t)
	f, err := os.Open(write(t, Program("dev.local/second:v1", "amd64", file), Program("dev.local/first:v2", "amd64", file)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inside := map[string][]byte{}
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if inside[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
	var saved []legacy
	if err := json.Unmarshal(inside["manifest.json"], &saved); err != nil {
		t.Fatal(err)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(inside["index.json"]))
	if err != nil {
		t.Fatal(err)
	}
	if len(saved) != 2 || len(index.Manifests) != 2 {
		t.Fatalf("%d images in manifest.json and %d in index.json, want 2", len(saved), len(index.Manifests))
	}
	for n, want := range []string{"dev.local/first:v2", "dev.local/second:v1"} {
		if got := saved[n].RepoTags[0]; got != want {
			t.Errorf("manifest.json: image %d is %s, want %s", n, got, want)
		}
		if got := index.Manifests[n].Annotations["io.containerd.image.name"]; got != want {
			t.Errorf("index.json: image %d is %s, want %s", n, got, want)
		}
		manifest, err := v1.ParseManifest(bytes.NewReader(inside[blob(index.Manifests[n].Digest)]))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := saved[n].Config, blob(manifest.Config.Digest); got != want {
			t.Errorf("image %d: config %s in manifest.json, %s in the OCI manifest", n, got, want)
		}
		for _, l := range saved[n].Layers {
			if len(inside[l]) == 0 {
				t.Errorf("image %d: the layer %s is not in the tar", n, l)
			}
		}
	}
}

func TestReproducible(t *testing.T) {
	file := program(t)
	images := []Image{Program("dev.local/first:v1", "arm64", file), Program("dev.local/second:v1", "arm64", file)}
	first, err := os.ReadFile(write(t, images...))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(write(t, images[1], images[0]))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the same programs made two different files")
	}
}

// TestPush pushes an image for two architectures and fetches each.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/me/hello:v1"
	file := program(t)
	digests, err := Push(context.Background(), []Image{Program(ref, "arm64", file), Program(ref, "amd64", file)})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := index.Digest(); err != nil || got.String() != digests[ref] {
		t.Errorf("the registry has %v (%v), Push said %s", got, err, digests[ref])
	}
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		if config, err := img.ConfigFile(); err != nil || config.Architecture != arch {
			t.Errorf("asked for %s, got %v, %v", arch, config, err)
		}
	}
}

// TestOnto adds a program to an image in a registry.
func TestOnto(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host, file := strings.TrimPrefix(server.URL, "http://"), program(t)
	under := Image{
		Name: host + "/them/runtime:v7", Arch: "amd64", Programs: map[string]string{"/usr/bin/runtime": file}, Env: []string{"THEIRS=1"},
	}
	if _, err := Push(t.Context(), []Image{under}); err != nil {
		t.Fatal(err)
	}
	base, err := Fetch(t.Context(), under.Name, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	ours := Image{
		Name: "dev.local/ours:v1", Arch: "amd64", Onto: base, Env: []string{"OURS=1"},
		Programs: map[string]string{"/usr/local/bin/function": file},
	}
	tag, err := name.NewTag(ours.Name)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(write(t, ours), &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/local/bin/function"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	if env := strings.Join(config.Config.Env, " "); !strings.Contains(env, "THEIRS=1") || !strings.Contains(env, "OURS=1") {
		t.Errorf("environment %q, want both images'", env)
	}
	files := contents(t, img)
	for _, at := range []string{"usr/bin/runtime", "usr/local/bin/function", "etc/passwd"} {
		if files[at] == nil {
			t.Errorf("%s is not in the image", at)
		}
	}
	if _, err := Fetch(t.Context(), host+"/them/other:v7", "amd64"); err == nil || !strings.Contains(err.Error(), "other:v7 for amd64") {
		t.Errorf("error %v, want one that names the image", err)
	}
}

// TestRefusals checks that descriptions of images that could not run are rejected.
func TestRefusals(t *testing.T) {
	file := program(t)
	text := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	two := Program("dev.local/probe:v1", "amd64", file)
	two.Programs["/other"] = file
	relative := Image{Name: "dev.local/probe:v1", Arch: "amd64", Programs: map[string]string{"x": file}}
	for _, c := range []struct {
		what   string
		images []Image
		want   string
	}{
		{"no tag", []Image{Program("dev.local/probe", "amd64", file)}, "want HOST/NAME:TAG"},
		{"latest", []Image{Program("dev.local/probe:latest", "amd64", file)}, "a tag of its own"},
		{"no architecture", []Image{Program("dev.local/probe:v1", "", file)}, "for which architecture"},
		{"no program", []Image{{Name: "dev.local/probe:v1", Arch: "amd64"}}, "no program in it"},
		{"a file that is not there", []Image{Program("dev.local/probe:v1", "amd64", file+"-gone")}, "no such file"},
		{"a script", []Image{Program("dev.local/probe:v1", "amd64", text)}, "no program for Linux"},
		{"two programs", []Image{two}, "which one to run"},
		{"a relative path", []Image{relative}, "want an absolute path"},
		{"twice", []Image{Program("dev.local/probe:v1", "amd64", file), Program("dev.local/probe:v1", "arm64", file)}, "is there twice"},
	} {
		out := filepath.Join(t.TempDir(), "out.tar")
		err := Write(out, c.images)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.what, err, c.want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: a file is left", c.what)
		}
	}
}

// TestDynamicProgram checks the error for the most common mistake with --add.
func TestDynamicProgram(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks for a dynamically linked program of Linux")
	}
	err := Write(filepath.Join(t.TempDir(), "out.tar"), []Image{Program("dev.local/sh:v1", "amd64", "/bin/sh")})
	if err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("error %v, want one that names CGO_ENABLED=0", err)
	}
}
