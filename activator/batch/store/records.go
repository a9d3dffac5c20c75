package store

import (
	"net/http"
	"time"
)

// File is the record of a file.
type File struct {
	ID, Owner     string
	Name, Purpose string
	Bytes         int64
	Created       time.Time
	Expires       time.Time
}

// Query says which part of a list is wanted.
type Query struct {
	// After is the id of the last one that was seen; empty: from the beginning.
	After string
	// Limit is how many.
	Limit int
	// Oldest has the oldest ones first; else the newest are.
	Oldest bool
}

// Later is the record of a request that is answered later.
type Later struct {
	ID, Owner string
	Caller    []byte // who it came from: the caller's own business
	Method    string
	URI       string
	Header    http.Header
	Created   time.Time
	Deadline  time.Time // when it is given up
	Epoch     uint64
	Holder    string // who has claimed it, where a store has several users; empty: nobody, or it has one
	Bytes     int64  // of the body, or once there is one of the answer's

	Ended   time.Time // zero: there is no answer yet
	Expires time.Time // when the answer is forgotten
	Status  int
	Answer  http.Header
}

// Done says whether it was answered.
func (l *Later) Done() bool { return !l.Ended.IsZero() }

// Response is the record of a response that a client wants to find again.
type Response struct {
	ID, Owner string
	// Previous is the response that it goes on from; empty: it begins a conversation.
	Previous string
	// Status is OpenAI's word for how it ended.
	Status string
	// Background says that its client did not wait for it.
	Background bool
	Created    time.Time
	Expires    time.Time
	// Input and Answer are the bytes of what was asked and of what was answered.
	Input, Answer int64
}
