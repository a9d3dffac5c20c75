package store

import "time"

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

// Prefixes of ids of batches.
const (
	PrefixBatch    = "batch_"
	PrefixMessages = "msgbatch_"
)

// Prefix is that of the ids of such batches.
func (b *Batch) Prefix() string {
	if b.Messages {
		return PrefixMessages
	}
	return PrefixBatch
}

// MessagesInput is the purpose of the input of a batch of messages, and PurposeMessages of its output: see [File.Hidden].
const (
	MessagesInput   = "message_batch"
	PurposeMessages = "message_batch_output"
)

// Purpose is that of the files that it makes.
func (b *Batch) Purpose() string {
	if b.Messages {
		return PurposeMessages
	}
	return "batch_output"
}

// Result is what became of a line.
type Result struct {
	// Line is its number, from 0.
	Line int
	// OK says that it was answered, with 2xx.
	OK bool
	// Text is its line in the output, or where it is not OK among the errors, with its end.
	Text   []byte
	Tokens Tokens
	// Abandoned says that it was not answered when the batch ended.
	Abandoned bool
}

// Hidden says that no list has the file.
func (f *File) Hidden() bool { return f.Purpose == MessagesInput || f.Purpose == PurposeMessages }

// Expiry is until when the files of a batch are kept that ends now, in a store that keeps things for so long.
func (b *Batch) Expiry(now time.Time, keep time.Duration) time.Time {
	if b.KeepOutput > 0 {
		keep = min(keep, b.KeepOutput)
	}
	return now.Add(keep)
}

// Add counts a result.
func (b *Batch) Add(r Result) {
	if r.OK {
		b.Completed++
	} else {
		b.Failed++
		if r.Abandoned {
			b.Abandoned++
		}
	}
	b.Tokens.Input += r.Tokens.Input
	b.Tokens.Cached += r.Tokens.Cached
	b.Tokens.Output += r.Tokens.Output
	b.Tokens.Reasoning += r.Tokens.Reasoning
}

// AskCancel asks for the end of the batch. ErrState: it has ended, or is about to. Asked twice it does nothing.
func (b *Batch) AskCancel(now time.Time) error {
	switch b.Status {
	case Validating, InProgress:
		b.Status, b.CancelAsked = Cancelling, now
	case Cancelling:
	default:
		return ErrState
	}
	return nil
}
