package page

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// Bounds of what a browser loads for the page, and of the same compressed.
const (
	mostBytes      = 150_000
	mostCompressed = 60_000
)

// TestPage: each file has its type, a tag, and the policy that lets it load nothing from elsewhere; all are small.
func TestPage(t *testing.T) {
	total, compressed := 0, 0
	err := fs.WalkDir(built, "built", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, "built/")
		ask := func(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, nil)
			for k := 0; k+1 < len(header); k += 2 {
				r.Header.Set(header[k], header[k+1])
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		w := ask(Files(), http.MethodGet, Prefix+name)
		total += w.Body.Len()
		zipped := ask(Files(), http.MethodGet, Prefix+name, "Accept-Encoding", "gzip, br")
		compressed += zipped.Body.Len()
		zip, err := gzip.NewReader(zipped.Body)
		if err != nil {
			return err
		}
		if whole, err := io.ReadAll(zip); err != nil || zipped.Header().Get("Content-Encoding") != "gzip" || !bytes.Equal(whole, w.Body.Bytes()) {
			t.Errorf("%s compressed: %v, %d bytes of %d, %v", name, err, len(whole), w.Body.Len(), zipped.Header())
		}
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") == "" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "script-src 'self';") ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if again := ask(Files(), http.MethodGet, Prefix+name, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", name, again.Code)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > mostBytes || compressed > mostCompressed {
		t.Errorf("the page has %d bytes, %d compressed, want %d and %d at most", total, compressed, mostBytes, mostCompressed)
	}
	for _, missing := range []string{"nothing.js", "../page.go", "", "x/"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, Prefix, nil)
		r.URL.Path = Prefix + missing
		Files().ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			t.Errorf("%q: %d", missing, w.Code)
		}
	}
}

// TestNothingInline: the policy forbids scripts, styles and handlers in the page itself, and there are none.
func TestNothingInline(t *testing.T) {
	raw, err := built.ReadFile("built/index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`<script[^>]*>[^<]`, `<style`, `\sstyle=`, `\son[a-z]+=`, `https?://`} {
		if found := regexp.MustCompile(bad).Find(raw); found != nil {
			t.Errorf("%s in the page: %s", bad, found)
		}
	}
}
