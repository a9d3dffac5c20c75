package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

// record is a finished reference, a JSON file in entries/.
type record struct {
	Version  int       `json:"version"`
	Ref      string    `json:"ref"`
	Revision string    `json:"revision"` // the source's name for this content, or ""
	Digest   string    `json:"digest"`
	Tree     string    `json:"tree"`           // in trees/
	Path     string    `json:"path,omitempty"` // to load, in the tree; "": the tree
	GGUF     string    `json:"gguf,omitempty"`
	Name     string    `json:"name,omitempty"`
	Files    []stored  `json:"files"`
	Layers   []layer   `json:"layers,omitempty"`
	Checked  time.Time `json:"checked"` // by the source, the last time
}

const recordVersion = 1

// stored is a file of a model, as a blob.
type stored struct {
	Name   string    `json:"name"` // slash-separated, in the tree
	Size   api.Bytes `json:"size"`
	SHA256 string    `json:"sha256"`
	Git    string    `json:"git,omitempty"` // the git object's id
}

// layer is an archive that was unpacked into blobs.
type layer struct {
	SHA256 string    `json:"sha256"`
	Items  []archive `json:"items"`
}

func (r *record) size() api.Bytes {
	var sum api.Bytes
	for _, f := range r.Files {
		sum += f.Size
	}
	return sum
}

const (
	maxFiles = 100_000
	maxName  = 1024
)

// safeName refuses names that leave the model's folder, or that a file system may refuse.
func safeName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return permanentf("a file of the model has a name of %d bytes: want 1 to %d", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(name, `\`):
		return permanentf("a file of the model is called %q: control characters and backslashes are refused", name)
	case path.Clean(name) != name || !filepath.IsLocal(name) || name == ".":
		return permanentf("a file of the model is called %q, which leaves the model's folder or is not in its simplest form: refused", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 255 {
			return permanentf("a file of the model is called %.40q…: a part of its name is longer than 255 bytes", part)
		}
	}
	return nil
}

// finish sorts the files, derives digest, tree and path, and refuses files that can't lie in one folder.
func (r *record) finish() error {
	if len(r.Files) == 0 {
		return permanentf("the reference names no file")
	}
	if len(r.Files) > maxFiles {
		return permanentf("the model has more than %d files", maxFiles)
	}
	slices.SortFunc(r.Files, func(a, b stored) int { return strings.Compare(a.Name, b.Name) })
	names := make(map[string]bool, len(r.Files))
	h := sha256.New()
	for _, f := range r.Files {
		if err := safeName(f.Name); err != nil {
			return err
		}
		if names[f.Name] {
			return permanentf("the model has two files called %q", f.Name)
		}
		names[f.Name] = true
		fmt.Fprintf(h, "%s %d %s\n", f.SHA256, f.Size, f.Name)
	}
	for _, f := range r.Files {
		for dir := path.Dir(f.Name); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return permanentf("the model has a file called %q and files in a folder of that name", dir)
			}
		}
	}
	listing := hex.EncodeToString(h.Sum(nil))
	r.Version, r.Tree, r.Digest = recordVersion, listing[:32], "sha256:"+listing
	if r.GGUF == "" {
		var err error
		if r.GGUF, err = gguf(slices.Collect(maps.Keys(names))); err != nil {
			return err
		}
	}
	if len(r.Files) == 1 {
		r.Digest, r.Path = "sha256:"+r.Files[0].SHA256, r.Files[0].Name
	} else if r.Path == "" && r.Name == "" {
		r.Path = r.GGUF
	}
	return nil
}

// gguf returns the one GGUF file to load, a split one's first, or "".
func gguf(names []string) (string, error) {
	models := ggufs(names)
	if len(models) != 1 {
		return "", nil
	}
	if err := ggufname.Missing(models[0], names); err != nil {
		return "", permanentf("%w", err)
	}
	return models[0], nil
}

// ggufs returns none if there are weights in another format.
func ggufs(names []string) []string {
	if slices.ContainsFunc(names, func(name string) bool {
		return slices.Contains([]string{".safetensors", ".bin", ".pt", ".pth", ".h5", ".onnx"}, strings.ToLower(path.Ext(name)))
	}) {
		return nil
	}
	return ggufname.Models(names)
}

func (c *Cache) blobPath(sum string) string  { return filepath.Join(c.cfg.Dir, "blobs", "sha256", sum) }
func (c *Cache) partPath(id string) string   { return filepath.Join(c.cfg.Dir, "parts", id) }
func (c *Cache) entryPath(key string) string { return filepath.Join(c.cfg.Dir, "entries", key+".json") }
func (c *Cache) treePath(tree string) string { return filepath.Join(c.cfg.Dir, "trees", tree) }
func (c *Cache) claimPath(key string) string { return filepath.Join(c.cfg.Dir, "claims", key) }
func (c *Cache) lockPath(name string) string { return filepath.Join(c.cfg.Dir, "locks", name) }
func (c *Cache) refLock(key string) string   { return c.lockPath("ref-" + key) }
func (c *Cache) treeLock(tree string) string { return c.lockPath("tree-" + tree) }
func (c *Cache) hasBlob(f stored) bool       { return fileSize(c.blobPath(f.SHA256)) == f.Size }

// fileSize returns -1 if path names no regular file.
func fileSize(path string) api.Bytes {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	return api.Bytes(info.Size())
}

// readRecord returns nil if there is no valid entry.
func readRecord(path string) *record {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var r record
	if json.Unmarshal(text, &r) != nil || r.Version != recordVersion || !isHex(r.Tree, 32) {
		return nil
	}
	for _, f := range r.Files {
		if !isHex(f.SHA256, 64) || f.Size < 0 || safeName(f.Name) != nil {
			return nil
		}
	}
	for _, name := range []string{r.Path, r.GGUF} {
		if name != "" && safeName(name) != nil {
			return nil
		}
	}
	return &r
}

// changed reports whether a blob was written to since the model's last use, the entry's modification time: then
// its size proves nothing about its content.
func (c *Cache) changed(key string, r *record) bool {
	entry, err := os.Stat(c.entryPath(key))
	if err != nil {
		return true
	}
	return slices.ContainsFunc(r.Files, func(f stored) bool {
		blob, err := os.Stat(c.blobPath(f.SHA256))
		return err == nil && blob.ModTime().After(entry.ModTime())
	})
}

// whole reports what a cached model lacks. digests also checks digests; those of another user's files are always checked.
func (c *Cache) whole(ctx context.Context, r *record, digests bool) error {
	for _, f := range r.Files {
		for _, p := range []string{c.blobPath(f.SHA256), filepath.Join(c.treePath(r.Tree), filepath.FromSlash(f.Name))} {
			switch n := fileSize(p); {
			case n < 0:
				return fmt.Errorf("the cached %s is missing", f.Name)
			case n != f.Size:
				return fmt.Errorf("the cached %s has %d bytes instead of %d", f.Name, n, f.Size)
			}
		}
		if !digests && c.ours(c.blobPath(f.SHA256)) {
			continue
		}
		sum, err := disk.SHA256(ctx, c.blobPath(f.SHA256), nil)
		if err != nil {
			return err
		}
		if sum != f.SHA256 {
			discard(c.blobPath(f.SHA256)) // it is fetched again; open files stay
			return fmt.Errorf("the cached %s has the sha256 %s instead of %s", f.Name, sum, f.SHA256)
		}
	}
	return nil
}

// buildTree also repairs an existing tree. The index is locked.
func (c *Cache) buildTree(r *record) error {
	final := c.treePath(r.Tree)
	if _, err := os.Stat(final); err == nil {
		return c.mendTree(final, r)
	}
	building, err := os.MkdirTemp(filepath.Dir(final), ".new-")
	if err != nil {
		return fileError("put up the model's folder", err)
	}
	defer os.RemoveAll(building)
	if err := os.Chmod(building, 0o755); err != nil {
		return fileError("put up the model's folder", err)
	}
	if err := c.mendTree(building, r); err != nil {
		return err
	}
	if err := os.Rename(building, final); err != nil {
		return fileError("put up the model's folder", err)
	}
	return syncDir(filepath.Dir(final))
}

func (c *Cache) mendTree(dir string, r *record) error {
	for _, f := range r.Files {
		to := filepath.Join(dir, filepath.FromSlash(f.Name))
		blob := c.blobPath(f.SHA256)
		if a, err := os.Stat(to); err == nil {
			if b, err := os.Stat(blob); err == nil && os.SameFile(a, b) {
				continue
			}
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return fileError("put up the model's folder", err)
		}
		fresh := filepath.Join(filepath.Dir(to), ".link-"+f.SHA256[:16])
		discard(fresh)
		if err := os.Link(blob, fresh); err != nil {
			// No hard links here. A relative link works where the folder is mounted elsewhere.
			depth := strings.Repeat("../", 2+strings.Count(f.Name, "/"))
			if symErr := os.Symlink(depth+"blobs/sha256/"+f.SHA256, fresh); symErr != nil {
				return fileError("link "+f.Name, err)
			}
		}
		if err := os.Rename(fresh, to); err != nil {
			return fileError("link "+f.Name, err)
		}
	}
	return nil
}

func (c *Cache) write(key string, r *record) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("write the entry: %w", err)
	}
	return writeFile(c.entryPath(key), text)
}

func writeFile(path string, content []byte) error {
	if err := disk.WriteFile(path, content, 0o644); err != nil {
		return fileError("write to the model cache", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a folder survive a crash of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fileError("write to the model cache", err)
	}
	defer d.Close()
	_ = d.Sync() // some file systems refuse it, and need none
	return nil
}

// discard leaves what it can't remove to the next eviction.
func discard(path string) { _ = os.Remove(path) }
