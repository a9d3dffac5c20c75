package store

import (
	"io"
	"time"
)

// Condition restricts a write; the zero value does not. A Version must be the present one.
type Condition struct {
	Absent  bool
	Version string
}

// Entry is an object in a list.
type Entry struct {
	Key  string
	Size int64
	// Version changes whenever the object does. It compares with other lists' only.
	Version string
	// Modified is by the clock of the place.
	Modified time.Time
}

// Objects are the objects of a folder, for one process ([Folder]), or of an S3 bucket, for any number ([Bucket]).
//
// A key is a path of parts of ASCII letters, digits and _ - = . with 200 bytes each at most. No key is the beginning of
// another up to a slash.
//
// A change is durable once its method has returned nil. After [ErrUnavailable] it may have happened or not. Methods are
// safe for concurrent use, and block for a bounded time.
type Objects interface {
	// If when does not hold, the error of Put is ErrChanged. Conditional writes of an object must have different bodies: a
	// repeated attempt is recognised by its body.
	Put(key string, body []byte, when Condition) (version string, err error)
	// Get reads n bytes from an offset, or all if n is 0. Fewer bytes are an error.
	Get(key string, from, n int64) (body []byte, version string, err error)
	// The caller closes what Open returns.
	Open(key string, from int64) (io.ReadCloser, error)
	// List is sorted by key.
	List(prefix string) ([]Entry, error)
	// A missing object is no error.
	Delete(key string) error
	// Forget tries to delete an object that no record names.
	Forget(key string)
	// Room returns ErrFull if n more bytes would leave too little space for records.
	Room(n int64) error
	Shared() bool
	// Close ends the waiting of other methods. No method may be called afterwards.
	Close() error
}
