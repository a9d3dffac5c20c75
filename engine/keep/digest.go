package keep

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/internal/ggufname"
)

const known = ".digest"

// settle is how old a file's last change must be for a further one to have another time.
const settle = 2 * time.Second

type digestFile struct {
	Identity string `json:"identity"`
	Digest   string `json:"digest"`
}

// Model is a model's file, or files, as they were at one moment.
type Model struct {
	paths    []string
	dir      string
	identity string
	changed  time.Time // last
}

// OpenModel identifies a model's files by the name of one. dir is a [Config]'s.
func OpenModel(path, dir string) (*Model, error) {
	m := &Model{paths: ggufname.Parts(path), dir: dir}
	var err error
	if m.identity, m.changed, err = m.identify(); err != nil {
		return nil, fmt.Errorf("look at the model's file: %w", err)
	}
	return m, nil
}

func (m *Model) identify() (id string, changed time.Time, err error) {
	ids := make([]string, len(m.paths))
	for i, p := range m.paths {
		var t time.Time
		if ids[i], t, err = identify(p); err != nil {
			return "", changed, err
		}
		if t.After(changed) {
			changed = t
		}
	}
	return strings.Join(ids, "\n"), changed, nil
}

// Same reports whether the files are unchanged.
func (m *Model) Same() bool {
	id, _, err := m.identify()
	return err == nil && id == m.identity
}

// Known returns the files' SHA-256, if cached.
func (m *Model) Known() (sum [32]byte, ok bool) {
	b, err := os.ReadFile(m.memory())
	if err != nil {
		return sum, false
	}
	var d digestFile
	if json.Unmarshal(b, &d) != nil || d.Identity != m.identity {
		return sum, false
	}
	raw, err := hex.DecodeString(d.Digest)
	if err != nil || len(raw) != len(sum) {
		return sum, false
	}
	now := time.Now()
	_ = os.Chtimes(m.memory(), now, now) // or the age limit removes it
	return [32]byte(raw), true
}

func (m *Model) memory() string {
	name := sha256.Sum256([]byte(m.paths[0]))
	return filepath.Join(m.dir, folder, hex.EncodeToString(name[:16])+known)
}

// Digest reads the files and caches their SHA-256. It fails if one changes meanwhile.
func (m *Model) Digest(ctx context.Context) (sum [32]byte, err error) {
	if wait := settle - time.Since(m.changed); wait > 0 && wait <= settle {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return sum, context.Cause(ctx)
		}
	}
	h := sha256.New()
	for _, p := range m.paths {
		if err := hashFile(ctx, h, p); err != nil {
			return sum, fmt.Errorf("read the model's file: %w", err)
		}
	}
	if !m.Same() {
		return sum, errors.New("the model's file was changed since it was loaded")
	}
	sum = [32]byte(h.Sum(nil))
	if _, err := private(m.dir); err == nil {
		if b, err := json.Marshal(digestFile{m.identity, hex.EncodeToString(sum[:])}); err == nil {
			_ = replace(m.memory(), b)
		}
	}
	return sum, nil
}

func hashFile(ctx context.Context, h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(h, &cancelled{ctx, f})
	return err
}

// replace is atomic, and replaces links.
func replace(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "*"+partial)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

type cancelled struct {
	ctx context.Context // of one call of Digest
	r   io.Reader
}

func (c *cancelled) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}
