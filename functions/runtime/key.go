package runtime

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
)

// Keyed is a [Runtime] whose server requires a key that this instance has made. Code other than the runtime sends requests to it through
// [WithKey].
type Keyed interface{ Key() string }

// WithKey returns a transport that adds the key to requests; without a key it changes nothing.
func WithKey(by http.RoundTripper, k Keyed) http.RoundTripper { return withKey{by, k} }

type withKey struct {
	by  http.RoundTripper
	key Keyed
}

func (t withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	if key := t.key.Key(); key != "" {
		out := *r
		out.Header = r.Header.Clone()
		out.Header["Authorization"] = []string{"Bearer " + key}
		r = &out
	}
	return t.by.RoundTrip(r) // the wrapped transport
}

// keyFile is a file in an instance's folder that gives a server its key as an option: everybody on the machine can read a command line.
// It outlives the process that made it, as the server may.
type keyFile struct {
	path, option string

	mu  sync.Mutex // guards key
	key string     // empty: not read yet, or there is none
}

// make creates the file, unless it exists.
func (f *keyFile) make() error {
	if f.Key() != "" {
		return nil
	}
	if err := os.WriteFile(f.path, []byte(f.option+": "+rand.Text()+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the server's key: %w", err)
	}
	return nil
}

// Key returns the key, or "" if none was made.
func (f *keyFile) Key() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key == "" {
		raw, err := os.ReadFile(f.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "" // the server will report the missing key
		}
		f.key = strings.TrimSpace(strings.TrimPrefix(string(raw), f.option+":"))
	}
	return f.key
}
