package fetch_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/klauspost/compress/zstd"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
)

// registryServer is a registry in memory that can require credentials.
type registryServer struct {
	*httptest.Server
	password string
	mu       sync.Mutex // guards all below
	blobs    []string   // requested blobs, with their ranges
	cut      int        // the next blob breaks off after so many bytes
}

func newRegistry(t *testing.T) *registryServer {
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := &registryServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); s.password != "" && (user != "me" || pass != s.password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			s.mu.Lock()
			s.blobs = append(s.blobs, strings.TrimSpace(r.URL.Path[strings.LastIndex(r.URL.Path, ":")+1:]+" "+r.Header.Get("Range")))
			if s.cut > 0 {
				w = &cutter{ResponseWriter: w, left: s.cut}
				s.cut = 0
			}
			s.mu.Unlock()
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// ref returns the reference of a pushed artifact.
func (s *registryServer) ref(name string) string {
	return "oci://" + s.Listener.Addr().String() + "/" + name
}

func (s *registryServer) put(t *testing.T, path, kind string, content []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, s.URL+path, bytes.NewReader(content))
	check(t, err)
	req.Header.Set("Content-Type", kind)
	req.SetBasicAuth("me", s.password)
	resp, err := s.Client().Do(req)
	check(t, err)
	resp.Body.Close()
	if resp.StatusCode > 299 {
		t.Fatalf("PUT %s answers %s", path, resp.Status)
	}
}

type ociLayer struct {
	kind    string
	title   string
	content []byte
}

// push stores an artifact with these layers.
func (s *registryServer) push(t *testing.T, repo, tag string, layers ...ociLayer) {
	t.Helper()
	type descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	blob := func(kind string, content []byte) descriptor {
		req, err := http.NewRequest(http.MethodPost, s.URL+"/v2/"+repo+"/blobs/uploads/?digest=sha256:"+sumOf(content), bytes.NewReader(content))
		check(t, err)
		req.SetBasicAuth("me", s.password)
		resp, err := s.Client().Do(req)
		check(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("the blob is answered with %s", resp.Status)
		}
		return descriptor{MediaType: kind, Digest: "sha256:" + sumOf(content), Size: len(content)}
	}
	m := struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}{2, "application/vnd.oci.image.manifest.v1+json", blob("application/vnd.oci.empty.v1+json", []byte("{}")), nil}
	for _, l := range layers {
		d := blob(l.kind, l.content)
		if l.title != "" {
			d.Annotations = map[string]string{"org.opencontainers.image.title": l.title}
		}
		m.Layers = append(m.Layers, d)
	}
	text, err := json.Marshal(m)
	check(t, err)
	s.put(t, "/v2/"+repo+"/manifests/"+tag, m.MediaType, text)
}

// tarball returns an archive: files by name, or headers.
func tarball(t *testing.T, items ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, item := range items {
		switch item := item.(type) {
		case tar.Header:
			check(t, w.WriteHeader(&item))
		case [2]string:
			check(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: item[0], Size: int64(len(item[1])), Mode: 0o644}))
			_, err := io.WriteString(w, item[1])
			check(t, err)
		}
	}
	check(t, w.Close())
	return b.Bytes()
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	check(t, err)
	check(t, w.Close())
	return out.Bytes()
}

func TestArtifactOfFiles(t *testing.T) {
	s := newRegistry(t)
	weights := random(90, 80_000)
	s.push(t, "org/model", "v1",
		ociLayer{"application/vnd.example.weights", "model.safetensors", weights},
		ociLayer{"application/json", "./sub/config.json", []byte(`{}`)})
	c := open(t, config(t, s.Server))
	m := fetched(t, c, s.ref("org/model:v1"))
	if got := names(t, m.Path); !slices.Equal(got, []string{"model.safetensors", "sub/config.json"}) {
		t.Errorf("the model has %q", got)
	}
	holds(t, filepath.Join(m.Path, "model.safetensors"), weights)
	only := fetched(t, c, s.ref("org/model:v1?include=*.safetensors"))
	if holds(t, only.Path, weights); len(s.blobs) != 2 {
		t.Errorf("the blobs asked for are %q, want each once", s.blobs)
	}
	list, err := c.List(t.Context())
	check(t, err)
	pinned := s.ref("org/model@" + list[0].Revision)
	fetched(t, c, pinned)
	s.Close()
	holds(t, filepath.Join(fetched(t, c, pinned).Path, "model.safetensors"), weights)
}

func TestArtifactOfOneFile(t *testing.T) {
	s := newRegistry(t)
	weights := random(91, 50_000)
	s.push(t, "ai/tiny", "q4", ociLayer{"application/vnd.docker.ai.gguf.v3", "", weights}, ociLayer{"application/vnd.docker.ai.license", "", []byte("free")})
	s.mu.Lock()
	s.cut = 20_000
	s.mu.Unlock()
	m := fetched(t, open(t, config(t, s.Server)), s.ref("ai/tiny:q4"))
	if holds(t, m.Path, weights); filepath.Base(m.Path) != "model.gguf" || m.GGUF != m.Path {
		t.Errorf("the model is %+v", m)
	}
	if !slices.ContainsFunc(s.blobs, func(b string) bool { return strings.HasPrefix(b, sumOf(weights)) }) {
		t.Errorf("the blobs asked for are %q", s.blobs)
	}
}

func TestArtifactOfArchives(t *testing.T) {
	s := newRegistry(t)
	weights := string(random(92, 60_000))
	compress, err := zstd.NewWriter(nil)
	check(t, err)
	s.push(t, "org/kit", "v1",
		ociLayer{"application/vnd.kitops.modelkit.model.v1.tar+gzip", "", gzipped(t, tarball(t, tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, [2]string{"./model/weights.safetensors", weights}))},
		ociLayer{"application/vnd.kitops.modelkit.code.v1.tar+zstd", "", compress.EncodeAll(tarball(t, [2]string{"model/config.json", "{}"}), nil)},
		ociLayer{"application/vnd.cncf.model.doc.v1.tar", "", tarball(t, [2]string{"README.md", "hello"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "model/README.md", Linkname: "../README.md"})},
		ociLayer{"application/vnd.cncf.model.weight.config.v1.raw", "raw.json", []byte("[]")})
	c := open(t, config(t, s.Server))
	m := fetched(t, c, s.ref("org/kit:v1"))
	if got := names(t, m.Path); !slices.Equal(got, []string{"README.md", "model/README.md", "model/config.json", "model/weights.safetensors", "raw.json"}) {
		t.Errorf("the model has %q", got)
	}
	holds(t, filepath.Join(m.Path, "model/weights.safetensors"), []byte(weights))
	holds(t, filepath.Join(m.Path, "model/README.md"), []byte("hello"))
	if left := names(t, filepath.Join(c.Dir(), "blobs")); len(left) != 4 {
		t.Errorf("there are %d blobs, want 4: the archives are not kept", len(left))
	}
	// A new version with the same weights.
	s.push(t, "org/kit", "v2",
		ociLayer{"application/vnd.kitops.modelkit.model.v1.tar+gzip", "", gzipped(t, tarball(t, tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, [2]string{"./model/weights.safetensors", weights}))},
		ociLayer{"application/vnd.kitops.modelkit.code.v1.tar", "", tarball(t, [2]string{"model/config.json", `{"v":2}`})})
	before := len(s.blobs)
	m = fetched(t, c, s.ref("org/kit:v2"))
	holds(t, filepath.Join(m.Path, "model/weights.safetensors"), []byte(weights))
	holds(t, filepath.Join(m.Path, "model/config.json"), []byte(`{"v":2}`))
	if got := len(s.blobs) - before; got != 1 {
		t.Errorf("%d layers are fetched for the new version, want the new one", got)
	}
}

func TestModelcar(t *testing.T) {
	s := newRegistry(t)
	const layer = "application/vnd.oci.image.layer.v1.tar+gzip"
	s.push(t, "org/car", "latest",
		ociLayer{layer, "", gzipped(t, tarball(t, [2]string{"bin/busybox", "elf"}, tar.Header{Typeflag: tar.TypeLink, Name: "bin/sh", Linkname: "bin/busybox"}, [2]string{"models/old.json", "x"}, [2]string{"models/gone/a", "x"}))},
		ociLayer{layer, "", gzipped(t, tarball(t, [2]string{"models/.wh.gone", ""}, [2]string{"models/.wh.old.json", ""}, [2]string{"models/config.json", "{}"}, [2]string{"models/model.safetensors", "w"},
			tar.Header{Typeflag: tar.TypeSymlink, Name: "models/link.json", Linkname: "/models/config.json"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "models/loop", Linkname: "loop"}))})
	m := fetched(t, open(t, config(t, s.Server)), s.ref("org/car"))
	if got := names(t, m.Path); !slices.Equal(got, []string{"config.json", "link.json", "model.safetensors"}) {
		t.Errorf("the model has %q", got)
	}
	holds(t, filepath.Join(m.Path, "link.json"), []byte("{}"))
}

func TestArchivesThatEscape(t *testing.T) {
	for name, items := range map[string][]any{
		"leaves the model's folder":   {[2]string{"../../etc/passwd", "x"}},
		"out of the model's folder":   {tar.Header{Typeflag: tar.TypeSymlink, Name: "a/b", Linkname: "../../../etc"}, [2]string{"a/b/passwd", "x"}},
		"leads to \"../../outside\"":  {tar.Header{Typeflag: tar.TypeLink, Name: "b", Linkname: "../../outside"}},
		"neither a file, a folder":    {tar.Header{Typeflag: tar.TypeChar, Name: "dev"}},
		"control characters":          {[2]string{"a\\..\\b", "x"}},
		"files in a folder of that n": {[2]string{"a", "x"}, [2]string{"a/b", "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRegistry(t)
			s.push(t, "org/evil", "latest", ociLayer{"application/x.tar", "", tarball(t, items...)})
			c := open(t, config(t, s.Server))
			if err := refused(t, c, s.ref("org/evil"), name); !fetch.Permanent(err) {
				t.Errorf("%v is not permanent", err)
			}
			if left := names(t, filepath.Join(c.Dir(), "trees")); len(left) > 0 {
				t.Errorf("trees/ has %q", left)
			}
			if out := names(t, filepath.Dir(c.Dir())); slices.ContainsFunc(out, func(n string) bool { return !strings.HasPrefix(n, "cache/") }) {
				t.Errorf("beside the cache there is %q", out)
			}
		})
	}
	s := newRegistry(t)
	s.push(t, "org/evil", "title", ociLayer{"application/x", "../x", []byte("x")})
	refused(t, open(t, config(t, s.Server)), s.ref("org/evil:title"), "leaves the model's folder")
	s.push(t, "org/evil", "broken", ociLayer{"application/x.tar+gzip", "", gzipped(t, tarball(t, [2]string{"a", strings.Repeat("x", 5000)}))[:40]})
	refused(t, open(t, config(t, s.Server)), s.ref("org/evil:broken"), "unpack")
	s.push(t, "org/evil", "bomb", ociLayer{"application/x.tar+gzip", "", gzipped(t, tarball(t, [2]string{"a", strings.Repeat("x", 1<<20)}))})
	cfg := config(t, s.Server)
	cfg.Limit = 100_000
	refused(t, open(t, cfg), s.ref("org/evil:bomb"), "more than the cache may")
}

// TestArchivesThatFillDisks has archives that declare more than they hold.
func TestArchivesThatFillDisks(t *testing.T) {
	s := newRegistry(t)
	const kind = "application/x.tar+gzip"
	bounds := func(name, want string, layer []byte, free api.Bytes) {
		t.Helper()
		s.push(t, "org/bomb", name, ociLayer{kind, "", layer})
		cfg := config(t, s.Server)
		if free > 0 {
			cfg.Free = func(string) (api.Bytes, error) { return free, nil }
		}
		c := open(t, cfg)
		refused(t, c, s.ref("org/bomb:"+name), want)
		var kept int64
		for _, dir := range []string{"blobs", "parts"} {
			check(t, filepath.WalkDir(filepath.Join(c.Dir(), dir), func(_ string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				info, err := d.Info()
				kept += info.Size()
				return err
			}))
		}
		if kept > int64(len(layer)) {
			t.Errorf("%s: %d bytes stay behind of an archive of %d", name, kept, len(layer))
		}
	}
	bounds("ratio", "more than 32 times", gzipped(t, tarball(t, [2]string{"zeros", string(make([]byte, 40<<20))})), 0)
	packed := gzipped(t, tarball(t, [2]string{"a", strings.Repeat("x", 1<<20)}))
	bounds("disk", "too little room", packed, 500_000)
	bounds("oldgnu", "neither a file", gzipped(t, sparse(t, 3<<30, false)), 0)
	bounds("pax", "sparse file", gzipped(t, sparse(t, 3<<30, true)), 0)
	s.push(t, "org/bomb", "layers", ociLayer{kind, "", packed}, ociLayer{kind, "", gzipped(t, tarball(t, [2]string{"b", strings.Repeat("y", 1<<20)}))})
	cfg := config(t, s.Server)
	cfg.Limit = 1_500_000
	refused(t, open(t, cfg), s.ref("org/bomb:layers"), "more than the cache may")
}

// sparse returns a tar archive with a file of that size that is one hole: in the format 1.0 that PAX records describe, or in GNU tar's
// older one.
func sparse(t *testing.T, size int64, pax bool) []byte {
	t.Helper()
	block := func(name, content string, kind byte) []byte {
		b := make([]byte, 512)
		copy(b, name)
		copy(b[100:], fmt.Sprintf("%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00        ", 0o644, 0, 0, len(content), 0))
		b[156] = kind
		if kind == 'S' {
			copy(b[257:], "ustar  \x00")
			copy(b[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
			copy(b[483:], fmt.Sprintf("%011o\x00", size))
		} else {
			copy(b[257:], "ustar\x0000")
		}
		sum := 0
		for _, c := range b {
			sum += int(c)
		}
		copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
		for b = append(b, content...); len(b)%512 != 0; {
			b = append(b, 0)
		}
		return b
	}
	if !pax {
		return append(block("hole", "", 'S'), make([]byte, 1024)...)
	}
	var records strings.Builder
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=hole", fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		n := len(r) + 4 // its length, of two digits, a space and a newline
		fmt.Fprintf(&records, "%d %s\n", n, r)
	}
	content := fmt.Sprintf("1\n%d\n0\n", size)
	content += string(make([]byte, 512-len(content)))
	all := append(block("h", records.String(), 'x'), block("hole", content, '0')...)
	return append(all, make([]byte, 1024)...)
}

func TestRegistryCredentials(t *testing.T) {
	s := newRegistry(t)
	s.password = "hush"
	s.push(t, "org/model", "v1", ociLayer{"application/x", "a.gguf", []byte("GGUF")})
	cfg := config(t, s.Server)
	cfg.DockerConfig = filepath.Join(t.TempDir(), "config.json")
	c := open(t, cfg)
	refused(t, c, s.ref("org/model:v1"), "401", cfg.DockerConfig)
	write := func(pass string) {
		auth := base64.StdEncoding.EncodeToString([]byte("me:" + pass))
		check(t, os.WriteFile(cfg.DockerConfig, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, s.Listener.Addr().String(), auth), 0o600))
	}
	write("wrong")
	if err := refused(t, c, s.ref("org/model:v1"), "are not good for it"); strings.Contains(err.Error(), "wrong") || !fetch.Permanent(err) {
		t.Errorf("%v: want a permanent error without the password", err)
	}
	write("hush")
	fetched(t, c, s.ref("org/model:v1"))
	refused(t, c, s.ref("org/model:v2"), "there is no org/model with the tag or digest v2")
	check(t, os.WriteFile(cfg.DockerConfig, []byte("hush"), 0o600))
	if err := refused(t, c, s.ref("org/model:v1"), "is no docker config file"); strings.Contains(err.Error(), "hush") {
		t.Errorf("%v shows what is in the file", err)
	}
}
