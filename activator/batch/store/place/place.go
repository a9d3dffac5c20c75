// Package place opens the store that a setting names: a folder.
package place

import (
	"time"

	"github.com/rouse-dev/rouse/activator/batch/store"
	"github.com/rouse-dev/rouse/activator/batch/store/folder"
)

// Config says where a store is, and how much it takes.
type Config struct {
	// At is its folder; empty: there is no store.
	At string
	store.Limits
	// Wait is how long another process may hold a folder while it ends. Default 2 s.
	Wait time.Duration
}

// Open opens the store, which there is.
func Open(cfg Config) (store.Store, error) {
	return folder.Open(folder.Config{Dir: cfg.At, Limits: cfg.Limits, Wait: cfg.Wait})
}
