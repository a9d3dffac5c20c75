// Package place opens the store that a setting names: a folder, for one server, or s3://BUCKET/PREFIX, for as many as there are.
package place

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/batch/store"
	"github.com/rouse-dev/rouse/activator/batch/store/bucket"
	"github.com/rouse-dev/rouse/activator/batch/store/folder"
	"github.com/rouse-dev/rouse/internal/s3"
)

// Config says where a store is, and how much it takes.
type Config struct {
	// At is its folder, or s3://BUCKET/PREFIX; empty: there is no store.
	At string
	store.Limits
	// Wait is how long another process may hold a folder while it ends. Default 2 s.
	Wait time.Duration
	// S3 is where buckets are.
	S3 s3.Service
}

// Shared says whether it is one that several servers use, over a network.
func (c Config) Shared() bool { return strings.HasPrefix(c.At, "s3://") }

// gather is how long results wait for others, where recording them is some requests.
const gather = 2 * time.Second

// Gather is how long results of a batch may wait for others before they are recorded.
func (c Config) Gather() time.Duration {
	if c.Shared() {
		return gather
	}
	return 0
}

// Validate says what is wrong with where the store is to be.
func (c Config) Validate() error {
	if c.Shared() {
		_, _, err := bucket.ParseURL(c.At)
		return err
	}
	if scheme, _, found := strings.Cut(c.At, "://"); found {
		return fmt.Errorf("%.20q is no kind of store: want a folder, or s3://BUCKET/PREFIX", scheme)
	}
	return nil
}

// Open opens the store, which there is. log may be nil.
func Open(cfg Config, log *slog.Logger) (store.Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if !cfg.Shared() {
		return folder.Open(folder.Config{Dir: cfg.At, Limits: cfg.Limits, Wait: cfg.Wait})
	}
	name, prefix, err := bucket.ParseURL(cfg.At)
	if err != nil {
		return nil, err
	}
	return bucket.Open(bucket.Config{Service: cfg.S3, Bucket: name, Prefix: prefix, Limits: cfg.Limits, Logger: log})
}
