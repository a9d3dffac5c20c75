package store

import (
	"encoding/base32"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	crand "crypto/rand"
)

// ids is an encoding that preserves order, so that an owner's records are sorted by time.
var ids = base32.HexEncoding.WithPadding(base32.NoPadding)

// IDs generates unguessable ids that grow with time. The zero value is ready; it is safe for concurrent use.
type IDs struct {
	last atomic.Int64 // the last time in an id, in nanoseconds
}

// New returns a new id and its time.
func (i *IDs) New(prefix string) (string, time.Time) {
	now := time.Now()
	for {
		last := i.last.Load()
		next := max(last+1, now.UnixNano())
		if i.last.CompareAndSwap(last, next) {
			var at [8]byte
			binary.BigEndian.PutUint64(at[:], uint64(next)) //nolint:gosec // it is after 1970
			return prefix + strings.ToLower(ids.EncodeToString(at[:])) + strings.ToLower(crand.Text()), now
		}
	}
}
