package store

import (
	"encoding/base32"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	crand "crypto/rand"
)

// ids are written with an alphabet that keeps their order: so records of an owner lie in the order in which they came.
var ids = base32.HexEncoding.WithPadding(base32.NoPadding)

// IDs makes ids that nobody can guess and that grow with the time. The zero value is ready; it is safe for many goroutines.
type IDs struct {
	last atomic.Int64 // of the times in ids, in nanoseconds
}

// New is an id, and its time.
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
