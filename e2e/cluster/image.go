package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The images that the cluster itself needs. "dev.local" is a registry that
// Knative never asks for a digest, and a tag other than "latest" one that the
// kubelet never pulls.
const (
	pauseImage = "dev.local/pause:v1"
	// HelloImage is a stock function: it answers every request with one line.
	HelloImage = "dev.local/hello:v1"
)

func knativeImage(part string) string { return "dev.local/knative-" + part + ":v1" }

// image is a static program that is alone in its image.
type image struct {
	Name    string // with its tag
	Program string // path of the file
}

// images are what the cluster needs before anything else is loaded.
func images(p programs) []image {
	all := []image{
		{pauseImage, p.path("own", "pause")},
		{HelloImage, p.path("own", "hello")},
	}
	for _, part := range []string{"activator", "autoscaler", "controller", "queue", "webhook"} {
		all = append(all, image{knativeImage(part), p.path("knative", part)})
	}
	return all
}

// archive writes each image to a file of its own in the cache, unless it lies
// there, and returns the files. A program's path has its hash in it.
func archive(cache string, all []image) ([]string, error) {
	var files []string
	for _, img := range all {
		sum := sha256.Sum256([]byte(img.Name + "\n" + img.Program))
		file := filepath.Join(mkdir(filepath.Join(cache, "images")), filepath.Base(img.Program)+"-"+hex.EncodeToString(sum[:8])+".tar")
		files = append(files, file)
		if _, err := os.Stat(file); err == nil {
			_ = os.Chtimes(file, time.Now(), time.Now()) // the sweep goes by it
			continue
		}
		if err := whole(file, func(w io.Writer) error { return img.write(w) }); err != nil {
			return nil, fmt.Errorf("pack the image %s: %w", img.Name, err)
		}
	}
	return files, nil
}

// whole writes a file that exists only when it is complete.
func whole(file string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(file), "tmp-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// write writes the image as "docker save" would: a layer, a configuration and a
// manifest. It runs as nobody in particular and may write to /tmp.
func (img image) write(w io.Writer) error {
	program, err := os.ReadFile(img.Program)
	if err != nil {
		return err
	}
	layer, err := archiveOf([]entry{
		{name: "etc/", mode: 0o755}, {name: "tmp/", mode: 0o1777},
		{name: "etc/passwd", mode: 0o644, body: []byte("root:x:0:0:root:/:\nnonroot:x:65532:65532:nonroot:/:\n")},
		{name: "app", mode: 0o755, body: program},
	})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/app"}, "User": "65532:65532", "WorkingDir": "/", "Env": []string{"PATH=/"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": sum(config) + ".json", "RepoTags": []string{img.Name}, "Layers": []string{sum(layer) + ".tar"},
	}})
	if err != nil {
		return err
	}
	all, err := archiveOf([]entry{
		{name: sum(layer) + ".tar", mode: 0o644, body: layer},
		{name: sum(config) + ".json", mode: 0o644, body: config},
		{name: "manifest.json", mode: 0o644, body: manifest},
	})
	if err != nil {
		return err
	}
	_, err = w.Write(all)
	return err
}

// entry is one file of an archive, or a folder if its name ends in "/".
type entry struct {
	name string
	mode int64
	body []byte
}

func archiveOf(entries []entry) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.body)), ModTime: time.Unix(0, 0)}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return slices.Clip(buf.Bytes()), err
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
