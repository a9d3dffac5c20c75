package store

import (
	"errors"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// States of a batch, as OpenAI calls them.
const (
	Validating = "validating"
	Failed     = "failed"
	InProgress = "in_progress"
	Finalizing = "finalizing"
	Completed  = "completed"
	Expired    = "expired"
	Cancelling = "cancelling"
	Cancelled  = "cancelled"
)

// Batch is the record of a batch.
type Batch struct {
	ID, Owner string
	// Input is the file with its lines, Endpoint the path that they ask, Window how long it may take, as the client wrote it.
	Input, Endpoint, Window string
	// Messages says that it is one of Anthropic's: its files are not among its owner's.
	Messages bool
	// Caller is who it came from: the caller's own business.
	Caller   []byte
	Metadata map[string]string
	// KeepOutput is how long its output is kept; 0: as long as the store keeps things.
	KeepOutput time.Duration

	Status  string
	Created time.Time
	Expires time.Time // when it is too late
	// When it came into the states; zero: it did not.
	Began, Finalized, Ended_, CancelAsked time.Time //nolint:revive // Ended is a method
	Faults                                []Fault   // of an input that failed

	Total, Completed, Failed int
	Abandoned                int // of the failed, those that were not answered when the batch ended
	Tokens                   Tokens
	Model                    string // of all lines; empty: there are several

	Epoch uint64
	// OutID and ErrID are the files that it makes, where there is something to be in them.
	OutID, ErrID       string
	OutBytes, ErrBytes int64
}

// Tokens are what answers say that they took.
type Tokens struct{ Input, Cached, Output, Reasoning int64 }

// Fault is what is wrong with a line of an input, or with all of it (line 0).
type Fault struct {
	Code, Message, Param string
	Line                 int
}

// Ended says whether nothing more happens to the batch.
func (b *Batch) Ended() bool {
	switch b.Status {
	case Failed, Completed, Expired, Cancelled:
		return true
	}
	return false
}

// part is one of the two outputs while they grow.
type part struct {
	path  string // below the store's folder
	file  string // the id of the file that it becomes
	name  string // of that file
	bytes *int64
}

func (b *Batch) parts() [2]part {
	return [2]part{
		{filepath.Join(dirParts, b.ID+".out"), b.OutID, b.ID + "_output.jsonl", &b.OutBytes},
		{filepath.Join(dirParts, b.ID+".err"), b.ErrID, b.ID + "_error.jsonl", &b.ErrBytes},
	}
}

// NewBatch takes in a batch whose input, endpoint, window, caller and metadata are set. The error is ErrNotFound where the owner has no such file.
func (s *Store) NewBatch(b Batch, window time.Duration) (Batch, error) {
	b.ID, b.Created = s.newID(b.prefix())
	b.OutID, _ = s.newID("file-")
	b.ErrID, _ = s.newID("file-")
	b.Status, b.Expires = Validating, b.Created.Add(window)
	err := s.db.Update(func(tx *bolt.Tx) error {
		if _, err := get[File](tx, bucketFiles, b.Owner, b.Input); err != nil {
			return err
		}
		return put(tx, bucketBatches, b.Owner, b.ID, &b)
	})
	return b, full(err)
}

// Prefixes of ids of batches.
const (
	prefixBatch    = "batch_"
	prefixMessages = "msgbatch_"
)

func (b *Batch) prefix() string {
	if b.Messages {
		return prefixMessages
	}
	return prefixBatch
}

// MessagesInput is the purpose of the input of a batch of messages, and purposeMessages of its output. No list has such files.
const (
	MessagesInput   = "message_batch"
	purposeMessages = "message_batch_output"
)

func (b *Batch) purpose() string {
	if b.Messages {
		return purposeMessages
	}
	return "batch_output"
}

// Batch finds a batch of an owner.
func (s *Store) Batch(owner, id string) (Batch, error) {
	b, err := one[Batch](s, bucketBatches, owner, id)
	if err != nil {
		return Batch{}, err
	}
	return *b, nil
}

// Batches lists batches of an owner: those of messages, or the others.
func (s *Store) Batches(owner string, messages bool, q Query) ([]Batch, bool, error) {
	return list(s, bucketBatches, owner, q, func(b *Batch) bool { return b.Messages == messages })
}

// DeleteBatch forgets a batch that has ended (else ErrState), and its output.
func (s *Store) DeleteBatch(owner, id string) error {
	var b *Batch
	err := s.db.Update(func(tx *bolt.Tx) (err error) {
		if b, err = get[Batch](tx, bucketBatches, owner, id); err != nil {
			return err
		}
		if !b.Ended() {
			return ErrState
		}
		return tx.Bucket(bucketBatches).Delete(key(owner, id))
	})
	if err != nil {
		return full(err)
	}
	for _, file := range []string{b.OutID, b.ErrID} {
		if err := s.DeleteFile(owner, file); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

// Unfinished are all batches that have not ended.
func (s *Store) Unfinished() (all []Batch, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		return each(tx, bucketBatches, func(b *Batch) {
			if !b.Ended() {
				all = append(all, *b)
			}
		})
	})
	return all, err
}

// CancelBatch asks for the end of a batch. One that has ended, or is about to, is ErrState; asked twice it does nothing.
func (s *Store) CancelBatch(owner, id string) (Batch, error) {
	b, err := change(s, bucketBatches, owner, id, func(b *Batch) error {
		switch b.Status {
		case Validating, InProgress:
			b.Status, b.CancelAsked = Cancelling, time.Now()
		case Cancelling:
		default:
			return ErrState
		}
		return nil
	})
	if b == nil {
		b = &Batch{}
	}
	return *b, err
}
