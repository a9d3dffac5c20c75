package fetch

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch/peers"
)

// Share configures fetching large files together with other caches, see package peers: those with a known SHA-256, among caches with the
// same credential for the source, or none.
type Share struct {
	// SecretFile; "": nothing is shared.
	SecretFile string `flag:"share-secret-file" help:"<file> with a secret of 16 bytes at least; instances that have it fetch models' files from one another (default: $ROUSE_SHARE_SECRET_FILE, else nobody)"`
	// Peers are the other caches, as host:port. A name stands for all of its addresses; this cache may be among them.
	Peers []string `flag:"share-peers" split:"" help:"where the others are, as <host:port> separated by commas; a name stands for all its addresses (default: $ROUSE_SHARE_PEERS)"`
	// Listen is for [Cache.Peers], host:port; "": 127.0.0.1:8013.
	Listen string `flag:"share-listen" help:"<address> where the others are answered (default: $ROUSE_SHARE_LISTEN, else 127.0.0.1:8013)"`
	// Client; nil: a new one, without a proxy.
	Client *http.Client
}

const defaultShare = "127.0.0.1:8013"

const maxSecret = 4096

// newNode returns nil if the cache does not share.
func (c *Cache) newNode() (*peers.Node, error) {
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
	text, err := os.ReadFile(s.SecretFile)
	if err == nil && len(text) > maxSecret {
		err = fmt.Errorf("%s is longer than %d bytes", s.SecretFile, maxSecret)
	}
	if err != nil {
		return nil, fmt.Errorf("read the secret of the caches that share files: %w", err)
	}
	if err := os.MkdirAll(c.sharesPath(""), 0o700); err != nil {
		return nil, fileError("make the model cache's folder", err)
	}
	return peers.New(peers.Config{
		Group: []byte(strings.TrimSpace(string(text))), Peers: c.lookup, Find: c.shared, Client: s.Client, Logger: c.cfg.Logger,
	})
}

// Peers returns the handler for other caches, whose answers are sealed, and its address; nil: nothing is shared.
func (c *Cache) Peers() (h http.Handler, listen string) {
	if c.node == nil {
		return nil, ""
	}
	return c.node, cmp.Or(c.cfg.Share.Listen, defaultShare)
}

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

func (c *Cache) sharesPath(name string) string { return filepath.Join(c.cfg.Dir, "shares", name) }

// noteShare records a right for a later process, as an empty file's name.
func (c *Cache) noteShare(file file) {
	right := peers.NewRight(file.sums.sha256, *file.credential)
	if err := writeFile(c.sharesPath(file.sums.sha256+"-"+hex.EncodeToString(right[:])), nil); err != nil {
		c.cfg.Logger.Warn("a later process will not share a file", "file", file.name, "reason", err)
	}
}

func (c *Cache) dropShares(sum string) {
	notes, _ := filepath.Glob(c.sharesPath(sum + "-*"))
	for _, n := range notes {
		discard(n)
	}
}

func (c *Cache) shared(id string) *peers.File {
	notes, err := os.ReadDir(c.sharesPath(""))
	if err != nil {
		return nil
	}
	for _, n := range notes {
		sum, text, _ := strings.Cut(n.Name(), "-")
		right, err := hex.DecodeString(text)
		if err != nil || len(right) != len(peers.Right{}) || c.node.ID(peers.Right(right)) != id {
			continue
		}
		if size := fileSize(c.blobPath(sum)); size >= 0 {
			return &peers.File{Right: peers.Right(right), Size: int64(size), Open: c.opener(sum)}
		}
	}
	return nil
}

// opener's function opens a file, finished or partial.
func (c *Cache) opener(sum string) func() (*os.File, error) {
	return func() (*os.File, error) {
		f, err := os.Open(c.blobPath(sum))
		if errors.Is(err, fs.ErrNotExist) {
			return os.Open(c.partPath(sum))
		}
		return f, err
	}
}

func (c *Cache) shares(f file) bool {
	return c.node != nil && f.credential != nil && f.get != nil && f.sums.sha256 != "" && f.size >= peers.MinSize
}

// chunksSuffix is of the journal beside a part that has gaps.
const chunksSuffix = ".chunks"

// together returns false if only the source can provide the file.
func (f *fetching) together(ctx context.Context, p *part, file file) (done bool, err error) {
	if !f.c.shares(file) || p.size > 0 {
		return false, nil
	}
	var counted api.Bytes
	r, err := f.c.node.Download(ctx, peers.Job{
		Right: peers.NewRight(file.sums.sha256, *file.credential), SHA256: file.sums.sha256, Size: int64(file.size),
		File: p.lock.file, Open: f.c.opener(file.sums.sha256), Journal: p.path + chunksSuffix,
		Source: func(ctx context.Context, at int64, b []byte) error {
			return f.c.retry(ctx, func() error { return f.section(ctx, file, at, b) })
		},
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
	case errors.Is(err, errNoRanges), errors.Is(err, peers.ErrContent):
		f.c.cfg.Logger.Warn("fetching a file from its source alone", "file", file.name, "reason", err)
		f.meter.found(file.name, -counted)
		discard(p.path + chunksSuffix)
		return false, p.restart(file)
	case full(err):
		return false, f.c.writeError(err, 0)
	case err != nil:
		return false, err
	}
	f.c.cfg.Logger.Info("fetched a file together with other caches", "file", file.name, "fromSource", api.Bytes(r.FromSource).String(), "fromOthers", api.Bytes(r.FromPeers).String())
	p.size, p.sum = file.size, file.sums.sha256
	return true, nil
}
