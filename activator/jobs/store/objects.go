package store

import (
	"io"
	"time"
)

// Condition restricts a write. The zero value does not.
type Condition struct {
	Absent bool
	// Version, if not empty, must be the present one.
	Version string
}

// Entry is an object in a list.
type Entry struct {
	Key  string
	Size int64
	// Version changes whenever the object does. It compares with those of other lists only.
	Version string
	// Modified is by the clock of the place.
	Modified time.Time
}

// Objects are the named objects of a folder, for one process ([Folder]), or of an S3 bucket, for any number ([Bucket]).
//
// A key is a path of parts of ASCII letters, digits and _ - = . with 200 bytes each at most. No key is the beginning of
// another up to a slash.
//
// A change is durable once its method has returned nil. After [ErrUnavailable] it may have happened or not. After any other
// error it has not.
//
// Methods are safe for concurrent use. They block on a disk, or on a service for a bounded time.
type Objects interface {
	// Put writes an object, all or nothing. If when does not hold, the error is ErrChanged. Conditional writes of an object
	// must have different bodies: a repeated attempt is recognised by its body.
	Put(key string, body []byte, when Condition) (version string, err error)
	// Get reads n bytes from an offset, or up to the end if n is 0. Fewer bytes than n are an error.
	Get(key string, from, n int64) (body []byte, version string, err error)
	// Open reads an object from an offset to its end. The caller closes it.
	Open(key string, from int64) (io.ReadCloser, error)
	List(prefix string) ([]Entry, error)
	// A missing object is no error.
	Delete(key string) error
	// Forget tries to delete an object that no record names. It may stay, or come back after a failure of the machine.
	Forget(key string)
	// Room returns ErrFull if n more bytes would leave too little space for records.
	Room(n int64) error
	// Shared reports whether other processes may use the same objects.
	Shared() bool
	// Close ends the waiting of other methods. No method may be called afterwards.
	Close() error
}
