package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch/swarm"
)

// Share is how a cache fetches large files together with other caches, see package swarm. Only files whose SHA-256 the source
// says are shared, and only with those who ask the source with the same credential, or all with none.
type Share struct {
	// SecretFile holds the secret that the caches share; "": nothing is shared.
	SecretFile string
	// Peers are the other caches, as host:port. A host that is a name stands for all of its addresses, and this cache may be
	// among them.
	Peers []string
	// Listen is where the caches' questions are answered, host:port; "": 127.0.0.1:8013. The cache does not listen itself:
	// see [Cache.Peers].
	Listen string
	// Client asks the other caches; nil: one of its own, without a proxy.
	Client *http.Client
}

// defaultShare is where questions of other caches are answered unless the configuration says so.
const defaultShare = "127.0.0.1:8013"

// maxSecret bounds the secret's file.
const maxSecret = 4096

// newNode makes this cache's part in sharing; nil: it has none.
func (c *Cache) newNode() (*swarm.Node, error) {
	s := c.cfg.Share
	if s.SecretFile == "" {
		if len(s.Peers) > 0 {
			return nil, errors.New("there are caches to share files with and no secret: set ROUSE_SHARE_SECRET_FILE, or --share-secret-file")
		}
		return nil, nil
	}
	for _, p := range append(s.Peers, s.Listen) {
		host, port, err := net.SplitHostPort(p)
		if n, e := strconv.ParseUint(port, 10, 16); p != "" && (err != nil || e != nil || n == 0 && p != s.Listen || host == "" && p != s.Listen) {
			return nil, fmt.Errorf("the address %q of a cache to share files with: want host:port", p)
		}
	}
	f, err := os.Open(s.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("read the secret of the caches that share files: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil || len(text) > maxSecret {
		return nil, fmt.Errorf("read the secret of the caches that share files: %s is longer than %d bytes, or unreadable", s.SecretFile, maxSecret)
	}
	if err := os.MkdirAll(c.sharesPath(""), 0o700); err != nil {
		return nil, fileError("make the model cache's folder", err)
	}
	return swarm.New(swarm.Config{
		Group: []byte(strings.TrimSpace(string(text))), Peers: c.lookup, Find: c.shared, Client: s.Client, Logger: c.cfg.Logger,
	})
}

// Peers answers the questions of other caches: who has the secret and the right to a file gets it, nobody else anything. It is
// nil if nothing is shared; listen says where to.
func (c *Cache) Peers() (h http.Handler, listen string) {
	if c.node == nil {
		return nil, ""
	}
	if c.cfg.Share.Listen == "" {
		return c.node, defaultShare
	}
	return c.node, c.cfg.Share.Listen
}

// lookup resolves the names of the peers.
func (c *Cache) lookup(ctx context.Context) ([]string, error) {
	var all []string
	var failed error
	for _, p := range c.cfg.Share.Peers {
		host, port, err := net.SplitHostPort(p)
		if err != nil {
			return nil, err
		}
		addrs, err := net.DefaultResolver.LookupHost(ctx, host)
		var none *net.DNSError
		if errors.As(err, &none) && none.IsNotFound {
			continue // a Service without pods
		}
		failed = errors.Join(failed, err)
		for _, a := range addrs {
			all = append(all, net.JoinHostPort(a, port))
		}
	}
	return all, failed
}

// sharesPath is where it is noted that a file may be shared.
func (c *Cache) sharesPath(name string) string { return filepath.Join(c.cfg.Dir, "shares", name) }

// shareNote is what a note of a shared file holds. Its name has the file's SHA-256 and who has the right to it.
type shareNote struct {
	Size  int64       `json:"size"`
	Chunk int64       `json:"chunk"`
	Sums  []swarm.Sum `json:"sums"`
}

// noteShare notes that a file of the cache may be shared.
func (c *Cache) noteShare(sum string, f swarm.File) error {
	text, err := json.Marshal(shareNote{f.Size, f.Chunk, f.Sums})
	if err != nil {
		return err
	}
	return writeFile(c.sharesPath(sum+"-"+hex.EncodeToString(f.Right[:])), text)
}

// dropShares forgets who may have a file that is gone.
func (c *Cache) dropShares(sum string) {
	notes, _ := filepath.Glob(c.sharesPath(sum + "-*")) // the pattern is well formed
	for _, n := range notes {
		discard(n)
	}
}

// shared returns the file of the cache that has an id among those who share; nil: none.
func (c *Cache) shared(id string) *swarm.File {
	notes, err := os.ReadDir(c.sharesPath(""))
	if err != nil {
		return nil
	}
	for _, n := range notes {
		sum, text, _ := strings.Cut(n.Name(), "-")
		var right swarm.Right
		if !isHex(sum, 64) || !isHex(text, 64) {
			continue
		}
		if _, err := hex.Decode(right[:], []byte(text)); err != nil || c.node.ID(right) != id {
			continue
		}
		var note shareNote
		if text, err := os.ReadFile(c.sharesPath(n.Name())); err != nil || json.Unmarshal(text, &note) != nil || fileSize(c.blobPath(sum)) != api.Bytes(note.Size) {
			return nil
		}
		return &swarm.File{Right: right, Size: note.Size, Chunk: note.Chunk, Sums: note.Sums, Open: c.opener(sum)}
	}
	return nil
}

// opener opens a file of the cache by its SHA-256, finished or on its way.
func (c *Cache) opener(sum string) func() (swarm.ReaderAtCloser, error) {
	return func() (swarm.ReaderAtCloser, error) {
		f, err := os.Open(c.blobPath(sum))
		if errors.Is(err, fs.ErrNotExist) {
			f, err = os.Open(c.partPath(sum))
		}
		if err != nil {
			return nil, err
		}
		return f, nil
	}
}

// shares says whether a file is one that is fetched together with others.
func (c *Cache) shares(f file) bool {
	return c.node != nil && f.credential != nil && f.get != nil && f.sums.sha256 != "" && f.size >= swarm.MinSize
}

// chunksSuffix ends the name of a file beside a part that says which of its chunks are there: such a part has gaps.
const chunksSuffix = ".chunks"

// errNoRanges says that a source sends whole files only.
var errNoRanges = permanentf("the source sends no part of a file")

// together fills p with the help of other caches. done is false if it is left to the source alone.
func (f *fetching) together(ctx context.Context, p *part, file file) (done bool, err error) {
	if !f.c.shares(file) || p.size > 0 {
		return false, nil
	}
	var counted api.Bytes
	right := swarm.NewRight(file.sums.sha256, *file.credential)
	r, err := f.c.node.Download(ctx, swarm.Job{
		Right: right, SHA256: file.sums.sha256, Size: int64(file.size), File: chunked{p}, Open: f.c.opener(file.sums.sha256), Journal: p.path + chunksSuffix,
		Source: func(ctx context.Context, at int64, b []byte) error { return f.section(ctx, file, at, b) },
		Again:  f.c.again,
		Got: func(n int64) {
			counted += api.Bytes(n)
			if n < 0 {
				f.meter.found(file.name, api.Bytes(n))
				return
			}
			f.meter.got(file.name, api.Bytes(n))
		},
	})
	switch {
	case errors.Is(err, errNoRanges), errors.Is(err, swarm.ErrContent):
		f.c.cfg.Logger.Warn("fetching a file from its source alone", "file", file.name, "reason", err)
		f.meter.found(file.name, -counted)
		discard(p.path + chunksSuffix)
		return false, p.restart(file)
	case err != nil:
		return false, err
	}
	f.c.cfg.Logger.Info("fetched a file together with other caches", "file", file.name, "fromSource", api.Bytes(r.FromSource).String(), "fromOthers", api.Bytes(r.FromPeers).String())
	p.size, p.sum = file.size, file.sums.sha256
	if err := f.c.noteShare(file.sums.sha256, r.File); err != nil {
		f.c.cfg.Logger.Warn("a later process will not share a file", "file", file.name, "reason", err)
	}
	return true, nil
}

// chunked is a part that is written in any order.
type chunked struct{ *part }

// ReadAt implements io.ReaderAt.
func (c chunked) ReadAt(b []byte, at int64) (int, error) { return c.lock.file.ReadAt(b, at) }

// WriteAt implements io.WriterAt.
func (c chunked) WriteAt(b []byte, at int64) (int, error) {
	n, err := c.lock.file.WriteAt(b, at)
	if err != nil {
		return n, c.c.writeError(err, api.Bytes(len(b)-n))
	}
	return n, nil
}

// section fetches a section of a file from its source.
func (f *fetching) section(ctx context.Context, file file, at int64, b []byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(f.c.cfg.Stall, func() {
		cancel(fmt.Errorf("%s brought nothing for %s", file.from, f.c.cfg.Stall))
	})
	defer stall.Stop()
	req, err := file.get(ctx)
	if err != nil {
		return err
	}
	last := at + int64(len(b)) - 1
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", at, last))
	resp, err := f.client(file).Do(req)
	if err != nil {
		return cause(ctx, transportError(err))
	}
	defer resp.Body.Close()
	stall.Reset(f.c.cfg.Stall)
	var first, to, total int64
	switch {
	case resp.StatusCode == http.StatusOK:
		return errNoRanges
	case resp.StatusCode != http.StatusPartialContent:
		return statusOf(resp, file.hint)
	}
	if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &to, &total); err != nil || first != at || to != last || api.Bytes(total) != file.size {
		return permanentf("%s answers with another part than asked for, or has another size than its listing says", file.from)
	}
	if n, err := io.ReadFull(&swarm.Lively{Reader: resp.Body, Stall: stall, Limit: f.c.cfg.Stall}, b); err != nil {
		return cause(ctx, fmt.Errorf("%s broke off after %d of %d bytes: %w", file.from, n, len(b), err))
	}
	return nil
}

// offer notes that a file that came from its source alone may be shared.
func (f *fetching) offer(file file, sum string) {
	if !f.c.shares(file) {
		return
	}
	in, err := os.Open(f.c.blobPath(sum))
	if err != nil {
		return // it was evicted
	}
	defer in.Close()
	s := swarm.File{Right: swarm.NewRight(sum, *file.credential), Size: int64(file.size), Chunk: swarm.ChunkSize(int64(file.size))}
	for left := s.Size; left > 0; left -= s.Chunk {
		h := sha256.New()
		if _, err := io.CopyN(h, in, min(left, s.Chunk)); err != nil {
			return
		}
		s.Sums = append(s.Sums, swarm.Sum(h.Sum(nil)))
	}
	if err := f.c.noteShare(sum, s); err != nil {
		f.c.cfg.Logger.Warn("a later process will not share a file", "file", file.name, "reason", err)
	}
}
