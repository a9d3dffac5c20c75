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

// Query selects a part of a list.
type Query struct {
	// After is the id of the last one seen; empty: from the beginning.
	After string
	// Limit bounds the number of results.
	Limit int
	// Oldest sorts the oldest first; otherwise the newest are.
	Oldest bool
}

// Later is the record of a request that is answered later.
type Later struct {
	ID, Owner string
	Caller    []byte // identifies the sender, in the caller's own format
	Method    string
	URI       string
	Header    http.Header
	Created   time.Time
	Deadline  time.Time // when it is given up
	Epoch     uint64
	Holder    string // the claiming user, if the store has several; empty: none, or a store of one user
	Bytes     int64  // of the body, or once answered, of the answer

	Ended   time.Time // zero: not answered yet
	Expires time.Time // when the answer is deleted
	Status  int
	Answer  http.Header
}

// Done reports whether it was answered.
func (l *Later) Done() bool { return !l.Ended.IsZero() }

// Response is the record of a stored response.
type Response struct {
	ID, Owner string
	// Previous is the response that it continues from; empty: it begins a conversation.
	Previous string
	// Status is OpenAI's status at its end.
	Status string
	// Background means that its client did not wait for it.
	Background bool
	Created    time.Time
	Expires    time.Time
	// Input and Answer are the sizes of its input and answer, in bytes.
	Input, Answer int64
}
