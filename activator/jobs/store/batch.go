package store

import "time"

// The states of a batch, in OpenAI's terms.
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
	// Input is the file with its lines, Endpoint the path that they request, and Window the completion window as the
	// client wrote it.
	Input, Endpoint, Window string
	// Messages means that it is one of Anthropic's: its files are not among its owner's.
	Messages bool
	// Caller identifies the creator, in the caller's own format.
	Caller   []byte
	Metadata map[string]string
	// KeepOutput is how long its output is kept; 0: as long as the store's default.
	KeepOutput time.Duration

	Status  string
	Created time.Time
	Expires time.Time // the deadline
	// When it entered the states; zero: not yet.
	Began, Finalized, Ended_, CancelAsked time.Time //nolint:revive // Ended is a method
	Faults                                []Fault   // of an invalid input

	Total, Completed, Failed int
	Abandoned                int // of the failed lines, those unanswered at the end of the batch
	Tokens                   Tokens
	Model                    string // of all lines; empty: several

	Epoch uint64
	// OutID and ErrID are the files that it creates, unless they would be empty.
	OutID, ErrID       string
	OutBytes, ErrBytes int64
}

// Tokens are the tokens reported in answers.
type Tokens struct{ Input, Cached, Output, Reasoning int64 }

// Fault is an error in a line of an input, or in all of it (line 0).
type Fault struct {
	Code, Message, Param string
	Line                 int
}

// Ended reports whether the batch has a final status.
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

// Prefix returns the prefix of the ids of such batches.
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

// Purpose returns the purpose of the batch's output files.
func (b *Batch) Purpose() string {
	if b.Messages {
		return PurposeMessages
	}
	return "batch_output"
}

// Result is the result of a line.
type Result struct {
	// Line is its index, from 0.
	Line int
	// OK means that it was answered with a 2xx status.
	OK bool
	// Text is its line in the output, or in the errors if it is not OK, including the newline.
	Text   []byte
	Tokens Tokens
	// Abandoned means that it was unanswered at the end of the batch.
	Abandoned bool
}

// Hidden reports whether lists leave out the file.
func (f *File) Hidden() bool { return f.Purpose == MessagesInput || f.Purpose == PurposeMessages }

// Expiry returns when the files of a batch that ends now expire, in a store with that default.
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

// AskCancel requests the cancellation of the batch. ErrState: it has ended, or is about to. Repeating it has no
// effect.
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
