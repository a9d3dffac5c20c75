// Package place opens the configured store: a folder, for one server, or s3://BUCKET/PREFIX, for any number.
package place

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/jobs/store/bucket"
	"github.com/rouse-dev/rouse/activator/jobs/store/folder"
	"github.com/rouse-dev/rouse/internal/s3"
)

// Config is a store's configuration.
type Config struct {
	// At is its folder, or s3://BUCKET/PREFIX; empty: no store.
	At string
	store.Limits
	// Wait is how long to wait for another process that is about to close a folder. Default 2 s.
	Wait time.Duration
	// S3 is the service of buckets.
	S3 s3.Service
}

// Shared reports whether several servers can use the store, over a network.
func (c Config) Shared() bool { return strings.HasPrefix(c.At, "s3://") }

// gather is how long results wait for others if recording them takes network requests.
const gather = 2 * time.Second

// Gather returns how long results of a batch may wait for others before they are recorded.
func (c Config) Gather() time.Duration {
	if c.Shared() {
		return gather
	}
	return 0
}

// Validate returns an error for an invalid location.
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

// Open opens the store; cfg.At must not be empty. log may be nil.
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
