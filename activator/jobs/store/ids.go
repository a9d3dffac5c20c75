package store

import (
	"encoding/base32"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	crand "crypto/rand"
)

// An owner's records are sorted by time.
var ordered = base32.HexEncoding.WithPadding(base32.NoPadding)

// ids generates unguessable ids that grow with time. It is safe for concurrent use.
type ids struct {
	last atomic.Int64 // the last time in an id, in nanoseconds
}

func (i *ids) next(prefix string) (string, time.Time) {
	now := time.Now()
	for {
		last := i.last.Load()
		t := max(last+1, now.UnixNano())
		if i.last.CompareAndSwap(last, t) {
			var at [8]byte
			binary.BigEndian.PutUint64(at[:], uint64(t))
			return prefix + strings.ToLower(ordered.EncodeToString(at[:])) + strings.ToLower(crand.Text()), now
		}
	}
}
