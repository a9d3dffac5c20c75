package fetch

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/rouse-dev/rouse/api"
)

// archive is an entry of a tar archive: a file, as a blob, or a link.
type archive struct {
	Name   string    `json:"name"`
	Size   api.Bytes `json:"size,omitempty"`
	SHA256 string    `json:"sha256,omitempty"` // "": a link or folder
	Link   string    `json:"link,omitempty"`   // the target's name in the merged archives
}

// An archive may unpack to inflation times its size plus slack: weights hardly compress.
const (
	inflation = 32
	slack     = 16 << 20
)

// maxWindow bounds a zstd decoder's memory: the window of zstd --long.
const maxWindow = 128 << 20

// unpack turns files of the tar archive b into blobs. No name in it becomes one on the disk: links are only recorded.
func (f *fetching) unpack(ctx context.Context, claim *os.File, b stored) (layer, error) {
	l := layer{SHA256: b.SHA256}
	file, err := os.Open(f.c.blobPath(b.SHA256))
	if err != nil {
		return l, fileError("unpack", err)
	}
	defer file.Close()
	plain, err := decompress(file)
	if err != nil {
		return l, permanentf("unpack: %w", err)
	}
	defer plain.Close()
	most := slack + inflation*b.Size
	archived := tar.NewReader(&bounded{plain, most, b.Size})
	for {
		if err := ctx.Err(); err != nil {
			return l, context.Cause(ctx)
		}
		h, err := archived.Next()
		if err == io.EOF {
			return l, nil
		}
		if err != nil {
			return l, permanentf("unpack: %w", err)
		}
		if len(l.Items) >= maxFiles {
			return l, permanentf("unpack: the archive has more than %d files", maxFiles)
		}
		item, err := item(h)
		if err != nil {
			return l, err
		}
		if h.Typeflag == tar.TypeReg {
			if err := f.roomFor(ctx, api.Bytes(h.Size)); err != nil {
				return l, err
			}
			if item.SHA256, item.Size, err = f.keep(ctx, claim, archived); err != nil {
				return l, err
			}
		}
		if item.Name != "." {
			l.Items = append(l.Items, item)
		}
	}
}

// roomFor counts a model's archives together against the limit.
func (f *fetching) roomFor(ctx context.Context, size api.Bytes) error {
	unpacked := api.Bytes(f.unpacked.Add(int64(size)))
	if limit := f.c.cfg.Limit; limit > 0 && unpacked > limit {
		return permanentf("unpack: the model's archives hold more than the cache may, %s", limit)
	}
	if free, err := f.c.cfg.Free(f.c.cfg.Dir); err != nil || free >= size {
		return nil // a write will fail if need be
	}
	v, release, err := f.c.lockInventory(ctx)
	if err != nil {
		return err
	}
	defer release()
	return v.diskRoom(size)
}

// bounded fails to read more than left bytes.
type bounded struct {
	io.Reader
	left api.Bytes
	size api.Bytes // of the archive
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= api.Bytes(n); b.left < 0 {
		return 0, permanentf("its %s unpack to more than %d times as much: refused", b.size, inflation)
	}
	return n, err
}

// item refuses unsafe names and kinds that no model has (devices, pipes, sparse files).
func item(h *tar.Header) (archive, error) {
	a := archive{Name: path.Clean(strings.TrimPrefix(h.Name, "/"))}
	if a.Name != "." {
		if err := safeName(a.Name); err != nil {
			return a, err
		}
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") { // its size is not its content's
			return a, permanentf("the archive holds %q as a sparse file: refused; pack it without --sparse", a.Name)
		}
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeLink:
		a.Link = path.Clean(strings.TrimPrefix(h.Linkname, "/"))
	case tar.TypeSymlink:
		if a.Link = path.Clean(strings.TrimPrefix(h.Linkname, "/")); !path.IsAbs(h.Linkname) {
			a.Link = path.Join(path.Dir(a.Name), h.Linkname)
		}
	default:
		return a, permanentf("the archive holds %q, which is neither a file, a folder nor a link: refused", a.Name)
	}
	if a.Link != "" && (!filepath.IsLocal(a.Link) || a.Link != "." && safeName(a.Link) != nil) {
		return a, permanentf("the archive's link %q leads to %q, out of the model's folder: refused", a.Name, h.Linkname)
	}
	return a, nil
}

func (f *fetching) keep(ctx context.Context, claim *os.File, r io.Reader) (string, api.Bytes, error) {
	tmp, err := lockedTemp(f.c.partPath(""))
	if err != nil {
		return "", 0, fileError("unpack", err)
	}
	defer tmp.Close()
	defer discard(tmp.Name())
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(tmp, h), &cancellable{ctx, r})
	if err == nil {
		err = tmp.Sync()
	}
	switch {
	case full(err):
		return "", 0, f.c.writeError(err, 0)
	case errors.Is(err, ctx.Err()) && err != nil:
		return "", 0, err
	case err != nil:
		return "", 0, permanentf("unpack: %w", err)
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if err := f.c.adopt(ctx, claim, tmp.Name(), sum); err != nil {
		return "", 0, err
	}
	_ = tmp.Chmod(0o444)
	return sum, api.Bytes(n), nil
}

type cancellable struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancellable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 1<<20)
	head, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}

// merged lays each archive over the previous ones. Links stand for their targets' content; .wh. names remove earlier ones
// (OCI image specification).
func merged(layers []layer) []stored {
	tree := map[string]archive{}
	for _, l := range layers {
		gone, below := map[string]bool{}, map[string]bool{} // by this layer
		for _, a := range l.Items {
			dir, base := path.Split(a.Name)
			if base == ".wh..wh..opq" {
				below[path.Clean(dir)] = true
			} else if name, ok := strings.CutPrefix(base, ".wh."); ok {
				gone[dir+name], below[dir+name] = true, true
			}
		}
		if len(below) > 0 {
			maps.DeleteFunc(tree, func(name string, _ archive) bool { return gone[name] || inAny(name, below) })
		}
		for _, a := range l.Items {
			if !strings.HasPrefix(path.Base(a.Name), ".wh.") {
				tree[a.Name] = a
			}
		}
	}
	var files []stored
	for name, a := range tree {
		for hops := 0; a.Link != "" && hops < 16; hops++ {
			next, ok := tree[a.Link]
			if !ok {
				break
			}
			a = next
		}
		if a.SHA256 != "" {
			files = append(files, stored{Name: name, Size: a.Size, SHA256: a.SHA256})
		}
	}
	return files
}

func inAny(name string, folders map[string]bool) bool {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if folders[dir] {
			return true
		}
		if dir == "." || dir == "/" {
			return false
		}
	}
}
