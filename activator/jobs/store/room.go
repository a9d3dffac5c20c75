package store

import (
	"cmp"
	"fmt"
	"sync"
	"time"
)

// Limits bound a store. Zero fields have the defaults that they name.
type Limits struct {
	// MaxBytes bounds all bodies together. Default 10 GiB. One owner has at most half of it, except the owner Shared.
	MaxBytes int64
	// Keep is how long something is kept after its end, unless its client specifies less. Default 30 days.
	Keep time.Duration
	// MaxResponses bounds the responses of one owner. Default 100,000.
	MaxResponses int
	// Shared is the owner that all clients without a key share; empty: none.
	Shared string
}

func (l Limits) withDefaults() Limits {
	l.MaxBytes = cmp.Or(l.MaxBytes, 10<<30)
	l.Keep = cmp.Or(l.Keep, 30*24*time.Hour)
	l.MaxResponses = cmp.Or(l.MaxResponses, 100_000)
	return l
}

// used is the use of each owner.
type used struct {
	bytes     map[string]int64
	responses map[string]int
}

// room tracks owners' use within limits. It is safe for concurrent use.
type room struct {
	limits Limits

	mu   sync.Mutex // guards the fields below
	used used
	all  int64
}

// newRoom returns an empty room.
func newRoom(l Limits) *room {
	return &room{limits: l, used: used{bytes: map[string]int64{}, responses: map[string]int{}}}
}

// bytes returns the total bytes of all owners.
func (r *room) bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// add adds n bytes to an owner's use, without a limit.
func (r *room) add(owner string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all += n
	if r.used.bytes[owner] += n; r.used.bytes[owner] <= 0 {
		delete(r.used.bytes, owner)
	}
}

// reserve adds n bytes to an owner's use, or returns ErrFull.
func (r *room) reserve(owner string, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch l := &r.limits; {
	case r.all+n > l.MaxBytes:
		return fmt.Errorf("%w: all files together may take %d bytes: delete some, or wait until they expire", ErrFull, l.MaxBytes)
	case owner != l.Shared && r.used.bytes[owner]+n > l.MaxBytes/2:
		return fmt.Errorf("%w for this tenant: its files may take %d bytes: delete some, or wait until they expire", ErrFull, l.MaxBytes/2)
	}
	r.all += n
	r.used.bytes[owner] += n
	return nil
}

// reserveResponses adds n responses to an owner's use, or returns ErrFull.
func (r *room) reserveResponses(owner string, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used.responses[owner]+n > r.limits.MaxResponses {
		return fmt.Errorf("%w for this tenant: it may have %d responses: delete some, or wait until they expire", ErrFull, r.limits.MaxResponses)
	}
	r.used.responses[owner] += n
	return nil
}

// addResponses adds n to an owner's responses, without a limit.
func (r *room) addResponses(owner string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used.responses[owner] += n; r.used.responses[owner] <= 0 {
		delete(r.used.responses, owner)
	}
}

// set replaces the use with a fresh count.
func (r *room) set(u used) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used, r.all = u, 0
	for _, n := range u.bytes {
		r.all += n
	}
}
