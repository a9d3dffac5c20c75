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

// WithDefaults replaces zero fields with their defaults.
func (l Limits) WithDefaults() Limits {
	l.MaxBytes = cmp.Or(l.MaxBytes, 10<<30)
	l.Keep = cmp.Or(l.Keep, 30*24*time.Hour)
	l.MaxResponses = cmp.Or(l.MaxResponses, 100_000)
	return l
}

// Used is the use of each owner.
type Used struct {
	Bytes     map[string]int64
	Responses map[string]int
}

// Room tracks owners' use within limits. It is safe for concurrent use.
type Room struct {
	limits Limits

	mu   sync.Mutex // guards the fields below
	used Used
	all  int64
}

// NewRoom returns an empty Room.
func NewRoom(l Limits) *Room {
	return &Room{limits: l.WithDefaults(), used: Used{Bytes: map[string]int64{}, Responses: map[string]int{}}}
}

// Bytes returns the total bytes of all owners.
func (r *Room) Bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// Responses returns the number of an owner's responses.
func (r *Room) Responses(owner string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used.Responses[owner]
}

// Count adds n bytes to an owner's use, without a limit.
func (r *Room) Count(owner string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all += n
	if r.used.Bytes[owner] += n; r.used.Bytes[owner] <= 0 {
		delete(r.used.Bytes, owner)
	}
}

// Take adds n bytes to an owner's use, or returns ErrFull.
func (r *Room) Take(owner string, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch l := &r.limits; {
	case r.all+n > l.MaxBytes:
		return fmt.Errorf("%w: all files together may take %d bytes: delete some, or wait until they expire", ErrFull, l.MaxBytes)
	case owner != l.Shared && r.used.Bytes[owner]+n > l.MaxBytes/2:
		return fmt.Errorf("%w for this tenant: its files may take %d bytes: delete some, or wait until they expire", ErrFull, l.MaxBytes/2)
	}
	r.all += n
	r.used.Bytes[owner] += n
	return nil
}

// Fits returns why n more bytes and a response can't be stored now.
func (r *Room) Fits(owner string, n int64) error {
	if err := r.Take(owner, n); err != nil {
		return err
	}
	r.Count(owner, -n)
	return r.TakeResponses(owner, 0)
}

// TakeResponses adds n responses to an owner's use, or returns ErrFull.
func (r *Room) TakeResponses(owner string, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used.Responses[owner] >= r.limits.MaxResponses {
		return fmt.Errorf("%w for this tenant: it may have %d responses: delete some, or wait until they expire", ErrFull, r.limits.MaxResponses)
	}
	r.used.Responses[owner] += n
	return nil
}

// CountResponses adds n to an owner's responses, without a limit.
func (r *Room) CountResponses(owner string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used.Responses[owner] += n; r.used.Responses[owner] <= 0 {
		delete(r.used.Responses, owner)
	}
}

// Set replaces the use with a fresh count.
func (r *Room) Set(u Used) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used, r.all = u, 0
	for _, n := range u.Bytes {
		r.all += n
	}
}
