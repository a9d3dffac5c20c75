package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/rouse-dev/rouse/internal/pack"
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

// images returns the images that the cluster needs before any other is loaded: each a static program alone.
func images(p programs) []pack.Image {
	all := []pack.Image{
		pack.Program(pauseImage, runtime.GOARCH, p.path("own", "pause")),
		pack.Program(HelloImage, runtime.GOARCH, p.path("own", "hello")),
	}
	for _, part := range []string{"activator", "autoscaler", "controller", "queue", "webhook"} {
		all = append(all, pack.Program(knativeImage(part), runtime.GOARCH, p.path("knative", part)))
	}
	return all
}

// archive writes each image to a file of its own in the cache, unless it lies
// there, and returns the files. A program's path has the hash of its inputs in it.
func archive(cache string, all []pack.Image) ([]string, error) {
	var files []string
	for _, img := range all {
		sum := sha256.Sum256(fmt.Appendln(nil, img)) // maps are printed in the order of their keys
		file := filepath.Join(mkdir(filepath.Join(cache, "images")), hex.EncodeToString(sum[:8])+".tar")
		files = append(files, file)
		if _, err := os.Stat(file); err == nil {
			_ = os.Chtimes(file, time.Now(), time.Now()) // the sweep goes by it
			continue
		}
		if err := pack.Write(file, []pack.Image{img}); err != nil {
			return nil, err
		}
	}
	return files, nil
}
