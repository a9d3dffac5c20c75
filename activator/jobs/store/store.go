package store

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// The errors that callers distinguish.
var (
	ErrNotFound = errors.New("there is no such thing")
	// ErrFull means that [Limits.MaxBytes] or the disk is used up.
	ErrFull = errors.New("the store is full")
	// ErrFenced means that another claim has followed, or that the object is gone.
	ErrFenced = errors.New("the claim does not count any more")
	// ErrInUse means that a batch still reads the file.
	ErrInUse = errors.New("it is in use")
	// ErrState means that the object's state does not allow the operation.
	ErrState = errors.New("it has ended")
	// ErrHeld means that another live user of the store has claimed it.
	ErrHeld = errors.New("another has claimed it")
	// ErrUnavailable means that the store does not answer now, but may later.
	ErrUnavailable = errors.New("the store does not answer")
)

// Passing reports whether an error may go away: the store is full or unavailable.
func Passing(err error) bool { return errors.Is(err, ErrFull) || errors.Is(err, ErrUnavailable) }

// Ref names a batch, or a request.
type Ref struct{ Owner, ID string }

// News is a store's report of its work. It holds levels: the same may be reported again.
type News struct {
	// Batches and Laters are unfinished and, as far as known, without a holder, in order of arrival.
	Batches, Laters []Ref
	// Cancelled are batches claimed here that were cancelled elsewhere. Lost are batches and requests claimed here
	// whose claim no longer counts.
	Cancelled, Lost []string
}

// Store keeps clients' data. Once a method has returned nil, its changes are durable. Methods are safe for concurrent
// use. They block on a disk, or on a service for a bounded time; after that the error is ErrUnavailable, and a change
// may or may not have happened. All of them find only the owner's data: for other owners it does not exist
// (ErrNotFound).
type Store interface {
	// Watch reports the work to do, at once and until ctx ends, or returns an error. It is called once.
	Watch(ctx context.Context, tell func(News)) error
	// Sweep deletes what has expired: files that no batch reads, batches, answers and responses. It returns the
	// number.
	Sweep(now time.Time) (int, error)
	// Bytes returns the total size of all bodies.
	Bytes() int64
	// Fits returns why n more bytes of an owner's, and a response, can't be stored now; nil: they can, as far as
	// known.
	Fits(owner string, n int64) error
	// Close closes the store. No method may be called afterwards.
	Close() error

	Files
	Batches
	Laters
	Responses
}

// Files are a store's files.
type Files interface {
	// NewUpload begins to write a file. [Upload.Commit] or [Upload.Discard] ends it.
	NewUpload(owner string) (Upload, error)
	File(owner, id string) (File, error)
	// OpenFile opens the body of a file.
	OpenFile(owner, id string) (Body, File, error)
	// Files lists an owner's files, of one purpose if given. more reports whether others follow: a store may list
	// fewer than requested. A Query.After that does not exist is ErrNotFound.
	Files(owner, purpose string, q Query) (all []File, more bool, err error)
	// DeleteFile deletes a file, unless a batch still reads it (ErrInUse).
	DeleteFile(owner, id string) error
}

// Upload is a file that is being written. It belongs to one goroutine.
type Upload interface {
	// Write implements [io.Writer]. The error wraps [ErrFull] if there is no room.
	io.Writer
	// Bytes returns the number of bytes written.
	Bytes() int64
	// Commit creates the file. keep is how long it is kept; 0: the store's default. After an error there is no file.
	Commit(name, purpose string, keep time.Duration) (File, error)
	// Discard drops the upload. It must not follow a Commit.
	Discard()
}

// Body is a stored body. ReadAt is safe for concurrent use, the other methods are not.
type Body interface {
	io.ReadSeekCloser
	io.ReaderAt
}

// Batches are a store's batches.
type Batches interface {
	// NewBatch stores a batch whose input, endpoint, window, caller and metadata are set. The error is ErrNotFound if
	// the owner has no such file.
	NewBatch(b Batch, window time.Duration) (Batch, error)
	Batch(owner, id string) (Batch, error)
	// Batches lists an owner's batches of messages, or the others. See [Files.Files].
	Batches(owner string, messages bool, q Query) (all []Batch, more bool, err error)
	// CancelBatch requests the cancellation of a batch. One that has ended, or is about to, is ErrState; repeating it
	// has no effect.
	CancelBatch(owner, id string) (Batch, error)
	// DeleteBatch deletes a batch that has ended (otherwise ErrState), and its output.
	DeleteBatch(owner, id string) error
	// Claim claims a batch for running it. done are the lines that are done. [Claim.Close] or [Claim.Finish] ends the
	// claim. ErrState: the batch has ended. ErrHeld: another runs it.
	Claim(owner, id string) (c Claim, done map[int]bool, err error)
}

// Claim is the right to run a batch, until another claim follows: from then on every method returns ErrFenced. It
// belongs to one goroutine.
type Claim interface {
	// Batch returns the record as known to the claim.
	Batch() Batch
	// Change changes the batch's record. If cancellation was requested meanwhile, the record has that state before do
	// is called.
	Change(do func(*Batch)) error
	// Record adds results. After nil all of them are durable, each line once. After an error none counts. After
	// ErrUnavailable, call it again with the same results, optionally followed by others. ErrFenced: another has the
	// batch, or a line already has a result.
	Record(results []Result) error
	// Finish ends the batch with a status and creates its output files. It can be called again after an error.
	Finish(status string, faults []Fault) error
	// Close ends the claim; another may follow.
	Close()
}

// Laters are a store's requests that are answered later.
type Laters interface {
	// NewLater stores a request. One for a response already has its id.
	NewLater(l Later, body []byte, patience time.Duration) (Later, error)
	Later(owner, id string) (Later, error)
	// ClaimLater claims a request for serving it, and opens its body, which the caller closes. ErrState: it was
	// answered. ErrHeld: another serves it; with take, the claim is taken from that one instead.
	ClaimLater(owner, id string, take bool) (Later, Body, error)
	// LeaveLater gives a claim back: another may follow.
	LeaveLater(claim Later)
	// Asked reads the body of a request that has no answer yet.
	Asked(l Later) ([]byte, error)
	// FinishLater stores the answer to a claimed request. After an error there is none; ErrFenced means that no one
	// waits for this one.
	FinishLater(claim Later, status int, header http.Header, body []byte) error
	// Answer opens the answer of a request.
	Answer(l Later) (Body, error)
	// DeleteLater deletes a request and its answer.
	DeleteLater(owner, id string) error
}

// Responses are a store's responses.
type Responses interface {
	// NewResponseID returns the id and time for a response to be stored. It stores nothing.
	NewResponseID() (string, time.Time)
	// KeepResponse stores a response whose id, owner, status and time are set, with its input and answer. After an
	// error other than ErrUnavailable it is not stored. The responses that it continues from are kept as long as it
	// is. claim is the claim of the request that it answers, which is then done; nil: none. ErrFenced: no one waits
	// for this one.
	KeepResponse(r Response, before []string, input, answer []byte, claim *Later) error
	Response(owner, id string) (Response, error)
	// ReadResponse reads a response's input and answer.
	ReadResponse(r Response) (input, answer []byte, err error)
	DeleteResponse(owner, id string) error
}
