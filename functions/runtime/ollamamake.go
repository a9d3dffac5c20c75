package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/disk"
)

// maker creates models in a running Ollama. It is safe for many goroutines.
type maker struct {
	client *client

	mu      sync.Mutex          // guards digests
	digests map[string]measured // by path
}

type measured struct {
	size   int64
	time   time.Time
	digest string
}

// make makes no copy if the server's store is reachable.
func (m *maker) make(ctx context.Context, e api.Endpoint, from origin) error {
	request := maps.Clone(from.recipe.fields)
	if request == nil {
		request = map[string]any{}
	}
	request["model"], request["stream"] = from.name, false
	if from.recipe.from != "" {
		request["from"] = from.recipe.from
	}
	for name, files := range map[string]map[string]string{"files": from.recipe.files, "adapters": from.recipe.adapters} {
		blobs := map[string]string{}
		for as, path := range files {
			digest, err := m.give(ctx, e, path, from.store)
			if err != nil {
				return fmt.Errorf("give %s to Ollama: %w", path, err)
			}
			blobs[as] = digest
		}
		if len(blobs) > 0 {
			request[name] = blobs
		}
	}
	if _, err := m.client.call(ctx, http.MethodPost, e, "/api/create", request); err != nil {
		return fmt.Errorf("make the model %s: %w", from.name, err)
	}
	return nil
}

func (m *maker) measure(ctx context.Context, r *recipe) error {
	for _, files := range []map[string]string{r.files, r.adapters} {
		for _, path := range files {
			if _, err := m.digest(ctx, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *maker) give(ctx context.Context, e api.Endpoint, path, store string) (string, error) {
	digest, err := m.digest(ctx, path)
	if err != nil {
		return "", err
	}
	blob, err := blobName(digest)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(store, "blobs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := link(path, filepath.Join(dir, blob)); err == nil || errors.Is(err, fs.ErrExist) {
		_, err := m.client.call(ctx, http.MethodHead, e, "/api/blobs/"+digest, nil)
		if !Missing(err) {
			return digest, err
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = m.client.send(ctx, http.MethodPost, e, "/api/blobs/"+digest, f)
	return digest, err
}

func (m *maker) digest(ctx context.Context, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, found := m.digests[path]; found && old.size == info.Size() && old.time.Equal(info.ModTime()) {
		return old.digest, nil
	}
	sum, err := disk.SHA256(ctx, path, nil)
	if err != nil {
		return "", fmt.Errorf("compute the digest of %s: %w", path, err)
	}
	if m.digests == nil {
		m.digests = map[string]measured{}
	}
	digest := "sha256:" + sum
	m.digests[path] = measured{info.Size(), info.ModTime(), digest}
	return digest, nil
}
