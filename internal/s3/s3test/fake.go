// Package s3test provides S3 services for tests: an in-memory [Fake], and a real one ([Gateway]).
package s3test

import (
	"crypto/md5" // entity tags of S3 are this
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/internal/s3"
)

// Fake is an in-memory service with one bucket, "bucket". It checks no signatures.
type Fake struct {
	// IgnoreConditions ignores conditions of writes, as old services do; RefuseConditions answers that they are not
	// implemented.
	IgnoreConditions, RefuseConditions bool

	mu      sync.Mutex // guards the fields below
	objects map[string]object
	asked   map[string]int // by method
}

type object struct {
	text     []byte
	etag     string
	modified time.Time
}

// NewFake returns a Fake with an empty bucket.
func NewFake() *Fake { return &Fake{objects: map[string]object{}, asked: map[string]int{}} }

// Serve serves a handler until the test ends and returns it as a service.
func Serve(t testing.TB, h http.Handler) s3.Service {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return s3.Service{Endpoint: srv.URL, AccessKey: "key", SecretKey: "secret"}
}

// Keys returns the keys of all objects, sorted.
func (f *Fake) Keys() (keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.objects {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Asked returns the number of requests with a method since the previous call.
func (f *Fake) Asked(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.asked[method]
	f.asked[method] = 0
	return n
}

// Refuse answers with an error of S3.
func Refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>so it is</Message></Error>", code)
}

// ServeHTTP implements [http.Handler].
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[r.Method]++
	have, there := f.objects[key]
	switch {
	case bucket != "bucket":
		Refuse(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodGet && key == "":
		f.list(w, r.URL.Query())
	case r.Method == http.MethodPut:
		none, match := r.Header.Get("If-None-Match"), r.Header.Get("If-Match")
		switch {
		case f.RefuseConditions && none+match != "":
			Refuse(w, http.StatusNotImplemented, "NotImplemented")
			return
		case f.IgnoreConditions:
		case none != "" && there, match != "" && (!there || match != have.etag):
			Refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		sum := md5.Sum(body) // entity tags of S3 are this
		f.objects[key] = object{text: body, etag: `"` + hex.EncodeToString(sum[:]) + `"`, modified: time.Now()}
		w.Header().Set("ETag", f.objects[key].etag)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		Refuse(w, http.StatusNotFound, "NoSuchKey")
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", have.etag)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(have.text)))
	default:
		Refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// perList is fewer than in a real service, so that lists are split.
const perList = 7

func (f *Fake) list(w http.ResponseWriter, q url.Values) {
	var keys []string
	for k := range f.objects {
		if strings.HasPrefix(k, q.Get("prefix")) && k > q.Get("continuation-token") {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	l := s3.Listing{Encoding: "url"}
	if l.Truncated = len(keys) > perList; l.Truncated {
		keys = keys[:perList]
		l.Next = keys[perList-1]
	}
	for _, k := range keys {
		o := f.objects[k]
		l.Contents = append(l.Contents, s3.Entry{Key: url.QueryEscape(k), Size: int64(len(o.text)), ETag: o.etag, Modified: o.modified.UTC()})
	}
	_ = xml.NewEncoder(w).Encode(l) // the client may have left
}
