package store

import (
	"cmp"
	"fmt"
	"sync"
	"time"
)

// Limits bound a store. Zero fields have their defaults.
type Limits struct {
	// MaxBytes bounds all bodies and records. Default 10 GiB. An owner other than Shared has half of it.
	MaxBytes int64
	// Keep is how long something is kept after its end. Default 30 days.
	Keep time.Duration
	// MaxRecords bounds the files and jobs of one owner. Default 100,000.
	MaxRecords int
	// Shared is the owner of all clients without a key; empty: none.
	Shared string
}

func (l Limits) withDefaults() Limits {
	l.MaxBytes = cmp.Or(l.MaxBytes, 10<<30)
	l.Keep = cmp.Or(l.Keep, 30*24*time.Hour)
	l.MaxRecords = cmp.Or(l.MaxRecords, 100_000)
	return l
}

// A record counts so many bytes, with its hint, the last block of its body, and the faults and lines of a batch.
const (
	recordBytes = 8 << 10
	batchBytes  = 64 << 10
)

type use struct {
	bytes   int64
	records int
}

func (u use) times(n int) use { return use{u.bytes * int64(n), u.records * n} }

func (u use) plus(o use) use { return use{u.bytes + o.bytes, u.records + o.records} }

func recordOf(id string, n int64) use {
	if IsBatch(id) {
		return use{batchBytes + n, 1}
	}
	return use{recordBytes + n, 1}
}

type room struct {
	limits Limits

	mu   sync.Mutex // guards the fields below
	used map[string]use
	all  int64
}

func (r *room) bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

func (r *room) add(owner string, u use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(owner, u)
}

func (r *room) addLocked(owner string, u use) {
	r.all += u.bytes
	if r.used[owner] = r.used[owner].plus(u); r.used[owner].bytes <= 0 {
		delete(r.used, owner)
	}
}

func (r *room) reserve(owner string, u use) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.used[owner].plus(u)
	switch l := &r.limits; {
	case r.all+u.bytes > l.MaxBytes:
		return fmt.Errorf("%w: all files and records together may take %d bytes: delete some, or wait until they expire", ErrFull, l.MaxBytes)
	case owner != l.Shared && next.bytes > l.MaxBytes/2:
		return fmt.Errorf("%w for this tenant: its files and records may take %d bytes: delete some, or wait until they expire", ErrFull, l.MaxBytes/2)
	case u.records > 0 && next.records > l.MaxRecords:
		return fmt.Errorf("%w for this tenant: it may have %d files, batches, requests and responses: delete some, or wait until they expire", ErrFull, l.MaxRecords)
	}
	r.addLocked(owner, u)
	return nil
}

func (r *room) set(used map[string]use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used, r.all = used, 0
	for _, u := range used {
		r.all += u.bytes
	}
}
