package fetch_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// origin is an HTTPS server with files, range requests and faults.
type origin struct {
	*httptest.Server
	mu       sync.Mutex // guards all below
	files    map[string]served
	requests []string // "path range", of each request in order
	// before, if not nil, may answer a request itself: it returns true then.
	before func(w http.ResponseWriter, r *http.Request) bool
}

type served struct {
	content []byte
	etag    string
	cut     int // the connection is lost after so many bytes of an answer, once; 0: never
}

func newOrigin(t *testing.T) *origin {
	o := &origin{files: map[string]served{}}
	o.Server = httptest.NewTLSServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *origin) set(path string, s served) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files[path] = s
}

// answer sets before.
func (o *origin) answer(before func(http.ResponseWriter, *http.Request) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before = before
}

func (o *origin) seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.requests...)
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.requests = append(o.requests, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
	f, ok := o.files[r.URL.Path]
	cut := 0
	if ok && f.cut > 0 && r.Header.Get("Range") != "bytes=0-0" {
		cut = f.cut
		f.cut = 0
		o.files[r.URL.Path] = f
	}
	before := o.before
	o.mu.Unlock()
	switch {
	case before != nil && before(w, r):
	case !ok:
		http.NotFound(w, r)
	default:
		if f.etag != "" {
			w.Header().Set("ETag", f.etag)
		}
		if cut > 0 {
			w = &cutter{ResponseWriter: w, left: cut}
		}
		http.ServeContent(w, r, "", zero, bytes.NewReader(f.content))
	}
}

// zero disables the Last-Modified header.
var zero time.Time

// cutter loses the connection after some bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	written, err := c.ResponseWriter.Write(b[:n])
	if c.left -= written; c.left == 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return written, err
}

// config returns the configuration of a new cache that trusts the server.
func config(t *testing.T, s *httptest.Server) fetch.Config {
	c := fetch.Config{Dir: filepath.Join(t.TempDir(), "cache"), Backoff: time.Millisecond}
	if s != nil {
		c.Client = s.Client()
	}
	return c
}

func open(t *testing.T, c fetch.Config) *fetch.Cache {
	t.Helper()
	cache, err := fetch.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// fetched fetches, and releases the model when the test ends.
func fetched(t *testing.T, c *fetch.Cache, ref string) fetch.Model {
	t.Helper()
	m, err := c.Fetch(context.Background(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Release)
	return m
}

// refused expects a fetch to fail with an error that contains each of the texts.
func refused(t *testing.T, c *fetch.Cache, ref string, want ...string) error {
	t.Helper()
	m, err := c.Fetch(context.Background(), ref, nil)
	if err == nil {
		m.Release()
		t.Fatalf("fetching %s succeeds; want an error with %q", ref, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error is\n%v\nwant it to say %q", err, w)
		}
	}
	return err
}

// holds checks a file's content.
func holds(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s holds %d bytes, %.20q…; want %d, %.20q…", path, len(got), got, len(want), want)
	}
}

// random returns reproducible content.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// names lists the files below dir, except the cache's bookkeeping.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// tree returns the folder of a model in the cache.
func tree(c *fetch.Cache, m fetch.Model) string {
	trees := filepath.Join(c.Dir(), "trees")
	rel, _ := filepath.Rel(trees, m.Path)
	first, _, _ := strings.Cut(rel, "/")
	return filepath.Join(trees, first)
}
