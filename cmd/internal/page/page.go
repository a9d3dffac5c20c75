// Package page is the web page of a server: what `rouse ls`, `why`, `trace`, `usage` and `logs` say, live, and a playground.
// It is in the program, asks nobody else for anything, and has no right of its own: it calls the administrative API with the
// token that its address has behind the #, which no browser sends anywhere.
//
// Its source is in src, built (make page) is what npm makes of it; the two are compared by make page-check, so that
// Go needs no npm.
package page

import (
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

// Files serves what is below [Prefix].
func Files() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, strings.TrimPrefix(r.URL.Path, Prefix)) })
}

func serve(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is for GET", http.StatusMethodNotAllowed)
		return
	}
	raw, err := built.ReadFile("built/" + name)
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
