// Package page is the web page of a server: the information of `rouse ls`, `why`, `trace`, `usage` and `logs`, live, and a
// playground. It is embedded in the program, loads nothing from elsewhere, and has no permission of its own: it calls the
// administrative API with the token after the # of its address, which browsers never send.
//
// Its source is in src; built (make page) is npm's output. make page-check compares the two, so that Go needs no npm.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"strings"
)

// Prefix is the path of the files that the page loads.
const Prefix = "/rouse/page/"

//go:embed built
var built embed.FS

// policy lets the page load its own files and call its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// types are the content types of the page's files.
var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// Address returns the address of the page of the server at url, with the token that authorizes it.
func Address(url, token string) string { return strings.TrimSuffix(url, "/") + "/#token=" + token }

// Index serves the page itself.
func Index() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, "index.html") })
}

// SignedIn serves the page itself to browsers that are authorized by a session cookie: it offers to sign in at [PathSignIn], and
// out.
func SignedIn() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, signedIn) })
}

// Paths for signing in (GET, in a browser), and for reading (GET) and ending (DELETE) the session.
const (
	PathSignIn  = "/rouse/signin"
	PathSession = "/rouse/session"
)

// signedIn is the name of the index that signs in, which is derived from the other.
const signedIn = "signed-in.html"

// Files serves the files below [Prefix].
func Files() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, strings.TrimPrefix(r.URL.Path, Prefix)) })
}

// Protect restricts what a browser loads for an answer to the page's own files.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// read returns a file of the page.
func read(name string) ([]byte, error) {
	if name != signedIn {
		return built.ReadFile("built/" + name)
	}
	raw, err := built.ReadFile("built/index.html")
	return bytes.Replace(raw, []byte("<html "), []byte("<html data-sign-in "), 1), err
}

func serve(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	Protect(h)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is for GET", http.StatusMethodNotAllowed)
		return
	}
	raw, err := read(name)
	kind := types[path.Ext(name)]
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(raw)
	tag := `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache") // revalidated each time by its ETag
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(raw) // net/http writes nothing for HEAD
		return
	}
	h.Set("Content-Encoding", "gzip")
	zip := gzip.NewWriter(w)
	_, _ = zip.Write(raw) // the reader has left
	_ = zip.Close()
}
