package store

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// What callers tell apart.
var (
	ErrNotFound = errors.New("there is no such thing")
	// ErrFull is the error where [Limits.MaxBytes] or the disk is used up.
	ErrFull = errors.New("the store is full")
	// ErrFenced is the error of a claim that another has followed, or whose thing is gone.
	ErrFenced = errors.New("the claim does not count any more")
	// ErrInUse is the error of deleting what a batch still reads.
	ErrInUse = errors.New("it is in use")
	// ErrState is the error of what can't be done to a thing in its state.
	ErrState = errors.New("it has ended")
	// ErrHeld is the error of a claim on what another user of the store has claimed, and still works at.
	ErrHeld = errors.New("another has claimed it")
	// ErrUnavailable is the error of a store that does not answer now. It may later.
	ErrUnavailable = errors.New("the store does not answer")
)

// Passing says whether an error of a store may not be one after a while: it is full, or does not answer.
func Passing(err error) bool { return errors.Is(err, ErrFull) || errors.Is(err, ErrUnavailable) }

// Ref names a batch, or a request.
type Ref struct{ Owner, ID string }

// News is what a store has to tell to who works at what is in it. It holds levels: the same may be told again.
type News struct {
	// Batches and Laters are those that have not ended, and that nobody works at as far as is known: in the order in which they came.
	Batches, Laters []Ref
	// Cancelled are batches claimed here whose end was asked for elsewhere. Lost are batches and requests claimed here whose claim does not count
	// any more.
	Cancelled, Lost []string
}

// Store keeps what clients leave. What a method has returned nil for is kept for good. Methods are safe for many goroutines. They block: for a disk, or
// for a service until its time is up, which is bounded; then the error is ErrUnavailable, and what was to be changed may be changed or not.
// All of them find only what the owner has: for all others it is not there (ErrNotFound).
type Store interface {
	// Watch tells what there is to do, at once and until ctx ends; an error says that it can't. It is called once.
	Watch(ctx context.Context, tell func(News)) error
	// Sweep forgets what has expired: files that no batch reads, batches whose end is as long ago, answers, and responses. It returns how many.
	Sweep(now time.Time) (int, error)
	// Bytes is what all bodies take.
	Bytes() int64
	// Fits says why n bytes more of an owner's, and a response, can't be kept now; nil: they can, as far as is known.
	Fits(owner string, n int64) error
	// Close ends the use of the store. Nothing may be called afterwards.
	Close() error

	Files
	Batches
	Laters
	Responses
}

// Files are those of a store.
type Files interface {
	// NewUpload begins to write a file. [Upload.Commit] or [Upload.Discard] ends it.
	NewUpload(owner string) (Upload, error)
	File(owner, id string) (File, error)
	// OpenFile opens the body of a file.
	OpenFile(owner, id string) (Body, File, error)
	// Files lists files of an owner, those of a purpose where one is given. more says whether there are others behind them: a store may list fewer
	// than are asked for. A Query.After that is not there is ErrNotFound.
	Files(owner, purpose string, q Query) (all []File, more bool, err error)
	// DeleteFile deletes a file, unless a batch still reads it (ErrInUse).
	DeleteFile(owner, id string) error
}

// Upload is a file that is being written. It belongs to one goroutine.
type Upload interface {
	// Write implements [io.Writer]. The error wraps [ErrFull] where there is no room.
	io.Writer
	// Bytes is how many were written.
	Bytes() int64
	// Commit makes the file. keep is how long; 0: as long as the store keeps things. After an error there is none.
	Commit(name, purpose string, keep time.Duration) (File, error)
	// Discard forgets what was written. It must not follow a Commit.
	Discard()
}

// Body is what is kept. [Body.ReadAt] is safe for many goroutines, the others are not.
type Body interface {
	io.ReadSeekCloser
	io.ReaderAt
}

// Batches are those of a store.
type Batches interface {
	// NewBatch takes in a batch whose input, endpoint, window, caller and metadata are set. The error is ErrNotFound where the owner has no such file.
	NewBatch(b Batch, window time.Duration) (Batch, error)
	Batch(owner, id string) (Batch, error)
	// Batches lists batches of an owner: those of messages, or the others. See [Files.Files].
	Batches(owner string, messages bool, q Query) (all []Batch, more bool, err error)
	// CancelBatch asks for the end of a batch. One that has ended, or is about to, is ErrState; asked twice it does nothing.
	CancelBatch(owner, id string) (Batch, error)
	// DeleteBatch forgets a batch that has ended (else ErrState), and its output.
	DeleteBatch(owner, id string) error
	// Claim gives a batch to who runs it from now on. done are the lines that are done. [Claim.Close] or [Claim.Finish] ends it. ErrState: it has
	// ended. ErrHeld: another runs it.
	Claim(owner, id string) (c Claim, done map[int]bool, err error)
}

// Claim is the right to run a batch, until another follows: from then on all is ErrFenced. It belongs to one goroutine.
type Claim interface {
	// Batch is its record as the claim knows it.
	Batch() Batch
	// Change changes the batch's record. A batch whose cancellation was asked for meanwhile has that state before do.
	Change(do func(*Batch)) error
	// Record adds results. After nil all of them are there for good, each line once. After an error none counts, or, where that is ErrUnavailable, it is
	// to be called again with the same results, and others behind them. ErrFenced: another has the batch, or a line has a result already.
	Record(results []Result) error
	// Finish ends the batch with a status and makes files of its output. It can be called again after an error.
	Finish(status string, faults []Fault) error
	// Close ends the use of the claim; another may follow.
	Close()
}

// Laters are requests that are answered later.
type Laters interface {
	// NewLater takes in a request. One that asks for a response has its id already.
	NewLater(l Later, body []byte, patience time.Duration) (Later, error)
	Later(owner, id string) (Later, error)
	// ClaimLater gives a request to who serves it from now on, with its body, which the caller closes. ErrState: it was answered. ErrHeld: another
	// serves it, unless it is taken from that one.
	ClaimLater(owner, id string, take bool) (Later, Body, error)
	// LeaveLater gives a claim back: another may follow.
	LeaveLater(claim Later)
	// Asked reads the body of a request that has no answer yet.
	Asked(l Later) ([]byte, error)
	// FinishLater keeps the answer of a claimed request. After an error there is none, and ErrFenced says that nobody waits for this one.
	FinishLater(claim Later, status int, header http.Header, body []byte) error
	// Answer opens the answer of a request.
	Answer(l Later) (Body, error)
	// DeleteLater forgets a request and its answer.
	DeleteLater(owner, id string) error
}

// Responses are those that clients want to find again.
type Responses interface {
	// NewResponseID is the id of a response that is to be kept, and its time. It is not kept yet.
	NewResponseID() (string, time.Time)
	// KeepResponse keeps a response whose id, owner, status and time are set, with what was asked and answered: not at all after an error, but for
	// ErrUnavailable. The responses that it goes on from are kept for as long as it is. claim is that of the request that it answers, which is done
	// then; nil: there is none. ErrFenced says that nobody waits for this one.
	KeepResponse(r Response, before []string, input, answer []byte, claim *Later) error
	Response(owner, id string) (Response, error)
	// ReadResponse reads what was asked and answered.
	ReadResponse(r Response) (input, answer []byte, err error)
	DeleteResponse(owner, id string) error
}
