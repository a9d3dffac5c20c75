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

// Knative never asks dev.local for a digest, and the kubelet never pulls a tag other than "latest".
const (
	pauseImage = "dev.local/pause:v1"
	// HelloImage answers every request with one line.
	HelloImage = "dev.local/hello:v1"
)

func knativeImage(part string) string { return "dev.local/knative-" + part + ":v1" }

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

// archive returns a file of the cache for each image. A program's path has the hash of its inputs in it.
func archive(cache string, all []pack.Image) ([]string, error) {
	var files []string
	for _, img := range all {
		sum := sha256.Sum256(fmt.Appendln(nil, img)) // maps are printed in the order of their keys
		file := filepath.Join(mkdir(filepath.Join(cache, "images")), hex.EncodeToString(sum[:8])+".tar")
		files = append(files, file)
		if _, err := os.Stat(file); err == nil {
			_ = os.Chtimes(file, time.Now(), time.Now()) // for the sweep
			continue
		}
		if err := pack.Write(file, []pack.Image{img}); err != nil {
			return nil, err
		}
	}
	return files, nil
}
