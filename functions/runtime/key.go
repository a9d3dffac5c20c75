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

// Keyed is a [Runtime] whose server lets in only who has a key that this instance has made. Whoever
// gives it requests that are not the runtime's own does so through [WithKey].
type Keyed interface{ Key() string }

// WithKey returns a transport that shows a key to the server; where there is none, it changes nothing.
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
	return t.by.RoundTrip(r) // it is that transport
}

// keyFile is a file in an instance's own folder that gives a server its key as an option: a command line
// can be read by everybody who uses the machine. It outlives the process that made it, as the server may.
type keyFile struct {
	path, option string

	mu  sync.Mutex // guards key
	key string     // empty: not read yet, or there is none
}

// make makes the file, or finds the one that is there.
func (f *keyFile) make() error {
	if f.Key() != "" {
		return nil
	}
	if err := os.WriteFile(f.path, []byte(f.option+": "+rand.Text()+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the server's key: %w", err)
	}
	return nil
}

// Key is the key; empty where none was made.
func (f *keyFile) Key() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key == "" {
		raw, err := os.ReadFile(f.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "" // the server says that it lacks one
		}
		f.key = strings.TrimSpace(strings.TrimPrefix(string(raw), f.option+":"))
	}
	return f.key
}
