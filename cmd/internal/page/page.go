// Package page is the web page of a server: what `rouse ls`, `why`, `trace`, `usage` and `logs` say, live, and a playground.
// It is in the program, asks nobody else for anything, and has no right of its own: it calls the administrative API with the
// token that its address has behind the #, which no browser sends anywhere.
//
// Its source is in src, built (make page) is what npm makes of it; the two are compared by make page-check, so that
// Go needs no npm.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"strings"
)

// Prefix is the path of what the page loads besides itself.
const Prefix = "/rouse/page/"

//go:embed built
var built embed.FS

// policy lets the page load what is beside it, and call the server that it is from, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// types are those of the page's files.
var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// Address is where a browser finds the page of the server at url, with a token that is its right to administer.
func Address(url, token string) string { return strings.TrimSuffix(url, "/") + "/#token=" + token }

// Index serves the page itself.
func Index() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, "index.html") })
}

// SignedIn serves the page itself to browsers whose right is a session in a cookie: it offers to sign in at [PathSignIn], and out.
func SignedIn() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, signedIn) })
}

// Where the page signs in (GET, in a browser), and where it asks whose the session is (GET) and ends it (DELETE).
const (
	PathSignIn  = "/rouse/signin"
	PathSession = "/rouse/session"
)

// signedIn is the name of the index that signs in, which is made of the other.
const signedIn = "signed-in.html"

// Files serves what is below [Prefix].
func Files() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, strings.TrimPrefix(r.URL.Path, Prefix)) })
}

// Protect has a browser load nothing for an answer but the page's own files.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// read is a file of the page.
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
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache") // it is asked for again each time, and answered by its tag
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(raw) // net/http writes nothing for HEAD
}
