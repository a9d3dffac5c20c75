package fetch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// sharers are caches that share files, and the files' origin.
type sharers struct {
	*origin
	secret string
	peers  []string
	sent   atomic.Int64 // bytes of files
}

func newSharers(t *testing.T) *sharers {
	s := &sharers{origin: newOrigin(t), secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(s.secret, []byte("what the caches of a test share\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		s.count(r)
		return false
	})
	return s
}

// count counts the requested bytes of files.
func (s *sharers) count(r *http.Request) {
	var first, last int64
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n == 2 && last > 0 {
		s.sent.Add(last - first + 1)
	}
}

// open opens a cache in a folder, and serves its peers until the test ends.
func (s *sharers) open(t *testing.T, dir string) *fetch.Cache {
	t.Helper()
	return s.openWith(t, dir, fetch.Hub{})
}

func (s *sharers) openWith(t *testing.T, dir string, hub fetch.Hub) *fetch.Cache {
	t.Helper()
	cfg := config(t, s.Server)
	cfg.Hub = hub
	return s.openConfig(t, dir, cfg)
}

func (s *sharers) openConfig(t *testing.T, dir string, cfg fetch.Config) *fetch.Cache {
	t.Helper()
	var h atomic.Pointer[http.Handler]
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*h.Load()).ServeHTTP(w, r) }))
	t.Cleanup(door.Close)
	s.peers = append(s.peers, strings.TrimPrefix(door.URL, "http://"))
	cfg.Dir, cfg.Share = dir, fetch.Share{SecretFile: s.secret, Peers: s.peers}
	c := open(t, cfg)
	handler, listen := c.Peers()
	if listen != "127.0.0.1:8013" {
		t.Errorf("it would listen at %s unless it is told so", listen)
	}
	h.Store(&handler)
	return c
}

// TestShared: a file comes from another cache that has it, also from a later process of that cache, until it is evicted.
func TestShared(t *testing.T) {
	s := newSharers(t)
	content := random(1, 5<<20+77)
	s.set("/m.gguf", served{content: content})
	ref := s.URL + "/m.gguf#sha256=" + sumOf(content)
	first := t.TempDir()
	m, err := s.open(t, first).Fetch(t.Context(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, m.Path, content)
	m.Release()
	if sent := s.sent.Load(); sent != int64(len(content)) {
		t.Errorf("the origin has sent %d bytes of a file of %d", sent, len(content))
	}
	s.peers = nil // that process has ended
	again := s.open(t, first)
	holds(t, fetched(t, s.open(t, t.TempDir()), ref).Path, content)
	if sent := s.sent.Load(); sent != int64(len(content)) {
		t.Errorf("the origin has sent %d bytes of a file of %d that another cache has", sent, len(content))
	}
	notes := func() int {
		all, err := filepath.Glob(filepath.Join(first, "shares", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			if info, err := os.Stat(filepath.Dir(n)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("who may have a file can be read by others: %v, %v", info.Mode(), err)
			}
		}
		return len(all)
	}
	if n := notes(); n != 1 {
		t.Errorf("%d notes of shared files, want 1", n)
	}
	if _, err := again.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if n := notes(); n != 0 {
		t.Errorf("%d notes of shared files after the model was removed", n)
	}
}

// TestSharedWithRight: a file that was fetched with a credential is shared only with caches that have the same one.
func TestSharedWithRight(t *testing.T) {
	s := newSharers(t)
	content := random(2, 4<<20)
	s.set("/private.gguf", served{content: content})
	size := int64(len(content))
	ref := func(signature string) string {
		return s.URL + "/private.gguf" + signature + "#sha256=" + sumOf(content)
	}
	fetched(t, s.open(t, t.TempDir()), ref("?signature=ours"))
	for _, step := range []struct {
		signature string
		want      int64 // bytes sent by the origin after it
	}{{"?signature=ours", size}, {"?signature=theirs", 2 * size}, {"", 3 * size}, {"?signature=theirs", 3 * size}} {
		holds(t, fetched(t, s.open(t, t.TempDir()), ref(step.signature)).Path, content)
		if sent := s.sent.Load(); sent != step.want {
			t.Errorf("with %q: the origin has sent %d bytes, want %d", step.signature, sent, step.want)
		}
	}
}

// TestSharedHub: on a hub the token is the credential. Small files have no SHA-256 there, so they come from the hub only.
func TestSharedHub(t *testing.T) {
	h := newHub(t)
	h.files = map[string][]byte{"config.json": []byte(`{}`), "model.safetensors": random(3, 3<<20)}
	s := newSharers(t)
	s.origin = h.origin
	h.answer(func(w http.ResponseWriter, r *http.Request) bool {
		s.count(r)
		return h.serve(w, r)
	})
	size := int64(3 << 20)
	for _, step := range []struct {
		token string
		want  int64 // bytes of the weights that the hub has sent after it
	}{{"one", size}, {"one", size}, {"two", 2 * size}, {"one", 2 * size}} {
		h.token = step.token
		c := s.openWith(t, t.TempDir(), fetch.Hub{Endpoint: h.URL, Token: step.token})
		holds(t, filepath.Join(fetched(t, c, "hf://org/name").Path, "model.safetensors"), h.files["model.safetensors"])
		if sent := s.sent.Load(); sent != step.want {
			t.Errorf("with the token %s: the hub has sent %d bytes, want %d", step.token, sent, step.want)
		}
	}
}

// TestSharedBucket: objects of S3 whose SHA-256 the bucket reports are shared between caches with the same access key, also those of a
// folder. Others come from the bucket only.
func TestSharedBucket(t *testing.T) {
	b := newStore(t)
	b.objects = map[string][]byte{"m/config.json": []byte(`{}`), "m/model.safetensors": random(6, 3<<20)}
	b.keys, b.sums = map[string]string{"one": "secret-of-one", "two": "secret-of-two"}, true
	s := newSharers(t)
	s.origin = b.origin
	b.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			if s.count(r); r.Header.Get("Range") == "" && strings.HasSuffix(r.URL.Path, ".safetensors") {
				s.sent.Add(3 << 20)
			}
		}
		return b.serve(w, r)
	})
	const size = 3 << 20
	for _, step := range []struct {
		key, ref string
		sums     bool
		want     int64 // bytes of the weights that the bucket has sent after it
	}{
		{"one", "s3://models/m", true, size}, {"one", "s3://models/m", true, size}, {"two", "s3://models/m", true, 2 * size},
		{"one", "s3://models/m/model.safetensors", true, 2 * size}, {"one", "s3://models/m", false, 3 * size},
	} {
		b.sums = step.sums
		cfg := b.config(t)
		cfg.S3.AccessKey, cfg.S3.SecretKey = step.key, b.keys[step.key]
		m := fetched(t, s.openConfig(t, t.TempDir(), cfg), step.ref)
		path := m.Path
		if !strings.HasSuffix(path, ".safetensors") {
			path = filepath.Join(path, "model.safetensors")
		}
		holds(t, path, b.objects["m/model.safetensors"])
		if sent := s.sent.Load(); sent != step.want {
			t.Errorf("%s with the key %s, sums %t: the bucket has sent %d bytes, want %d", step.ref, step.key, step.sums, sent, step.want)
		}
	}
}

// TestShareRefused has invalid configurations.
func TestShareRefused(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	long := filepath.Join(t.TempDir(), "long")
	for path, text := range map[string]string{short: "short", long: strings.Repeat("x", 5000)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := newSharers(t).secret
	for want, share := range map[string]fetch.Share{
		"ROUSE_SHARE_SECRET_FILE": {Peers: []string{"a:1"}},
		"too short":               {SecretFile: short},
		"longer than":             {SecretFile: long},
		"no such file":            {SecretFile: "/nowhere"},
		`"a"`:                     {SecretFile: good, Peers: []string{"a"}},
		`":1"`:                    {SecretFile: good, Peers: []string{":1"}},
		`"a:0"`:                   {SecretFile: good, Peers: []string{"a:0"}},
		`"a:99999"`:               {SecretFile: good, Listen: "a:99999"},
	} {
		cfg := config(t, nil)
		cfg.Share = share
		if _, err := fetch.New(cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%+v: got %v, want an error with %q", share, err, want)
		}
	}
	cfg := config(t, nil)
	if h, _ := open(t, cfg).Peers(); h != nil {
		t.Error("a cache that was told nothing shares files")
	}
}

// TestShareCutOff: the next process continues a partial download if it shares, and starts over if it does not.
func TestShareCutOff(t *testing.T) {
	s := newSharers(t)
	content := random(4, 8<<20)
	s.set("/m.gguf", served{content: content})
	ref := s.URL + "/m.gguf#sha256=" + sumOf(content)
	for name, shares := range map[string]bool{"sharing": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			begun := s.sent.Load()
			s.answer(func(_ http.ResponseWriter, r *http.Request) bool { // half of it, and no more
				if s.count(r); s.sent.Load()-begun > 4<<20 {
					<-r.Context().Done()
					return true
				}
				return false
			})
			if _, err := s.open(t, dir).Fetch(ctx, ref, func(p fetch.Progress) {
				if p.Done >= 4<<20 {
					cancel()
				}
			}); err == nil {
				t.Fatal("it was not cut off")
			}
			s.answer(func(_ http.ResponseWriter, r *http.Request) bool {
				s.count(r)
				return false
			})
			s.peers = nil
			before := s.sent.Load()
			c := s.open(t, dir)
			if !shares {
				cfg := config(t, s.Server)
				cfg.Dir = dir
				c = open(t, cfg)
			}
			holds(t, fetched(t, c, ref).Path, content)
			if more := s.sent.Load() - before; shares && more >= int64(len(content)) {
				t.Errorf("%d bytes were fetched again", more)
			}
			left, err := filepath.Glob(filepath.Join(dir, "parts", "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("parts are left: %v, %v", left, err)
			}
		})
	}
}

// TestShareFindsNoRoom: a full disk is reported as for any fetch, and the next fetch uses the received chunks.
func TestShareFindsNoRoom(t *testing.T) {
	s := newSharers(t)
	content := random(7, 8<<20)
	s.set("/m.gguf", served{content: content})
	ref := s.URL + "/m.gguf#sha256=" + sumOf(content)
	dir := t.TempDir()
	p := start(t, dir, ref, "FETCH_TEST_SECRET="+s.secret, fmt.Sprint("FETCH_TEST_FILE_LIMIT=", 5<<20))
	if got := p.line(t, "disk"); got != "disk" {
		t.Errorf("the process says %q, want that the disk is full", got)
	}
	if got := p.line(t, "error"); !strings.Contains(got, dir+" is full") {
		t.Errorf("the error is %q", got)
	}
	holds(t, fetched(t, s.open(t, dir), ref).Path, content)
}

// TestSharedDamaged: a cache whose file was changed, cut off or removed harms no other: they fetch it from the source.
func TestSharedDamaged(t *testing.T) {
	s := newSharers(t)
	content := random(8, 3<<20)
	s.set("/m.gguf", served{content: content})
	ref := s.URL + "/m.gguf#sha256=" + sumOf(content)
	for name, damage := range map[string]func(blob string) error{
		"changed": func(blob string) error {
			other := slices.Clone(content)
			other[1<<20] ^= 1
			return os.WriteFile(blob, other, 0o600)
		},
		"cut off": func(blob string) error { return os.Truncate(blob, 5<<19) },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			s.peers = nil
			dir := t.TempDir()
			fetched(t, s.open(t, dir), ref)
			blob := filepath.Join(dir, "blobs", "sha256", sumOf(content))
			if err := errors.Join(os.Chmod(blob, 0o600), damage(blob)); err != nil {
				t.Fatal(err)
			}
			holds(t, fetched(t, s.open(t, t.TempDir()), ref).Path, content)
		})
	}
}

// TestSharedWithoutRanges: a source that sends whole files only is used alone.
func TestSharedWithoutRanges(t *testing.T) {
	s := newSharers(t)
	content := random(5, 3<<20)
	s.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content)
		return true
	})
	ref := s.URL + "/m.gguf#sha256=" + sumOf(content)
	dir := t.TempDir()
	holds(t, fetched(t, s.open(t, dir), ref).Path, content)
	// Others have it from there.
	s.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") == "bytes=0-0" {
			return false
		}
		http.Error(w, "no more", http.StatusForbidden)
		return true
	})
	s.set("/m.gguf", served{content: content})
	holds(t, fetched(t, s.open(t, t.TempDir()), ref).Path, content)
}
