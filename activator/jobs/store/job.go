package store

import (
	"net/http"
	"strings"
	"time"
)

// The states of a job, in OpenAI's terms. A request has none until it has ended.
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

// Job is the record of work that no client waits for, and of what came of it: a batch, a request that is answered
// later, or a response.
type Job struct {
	// ID begins with the prefix of its kind.
	ID, Owner string
	// Caller identifies the creator, in the caller's own format.
	Caller   []byte
	Created  time.Time
	Deadline time.Time // when it is given up
	Status   string
	Ended    time.Time // zero: not yet
	Expires  time.Time // when it is deleted; zero until it has ended

	// Epoch counts its claims. Holder is the member that has claimed it; empty: none.
	Epoch  uint64
	Holder string

	Batch
	Request
	Response
}

// Prefixes of ids.
const (
	PrefixBatch    = "batch_"
	PrefixMessages = "msgbatch_"
	PrefixAsync    = "async_"
	PrefixResponse = "resp_"
)

// Batch is the part of a batch.
type Batch struct {
	// Input is the file with its lines, Endpoint the path that they request, and Window the completion window as the
	// client wrote it.
	Input, Endpoint, Window string
	// Messages means that it is one of Anthropic's: its files are not among its owner's.
	Messages bool
	Metadata map[string]string
	// KeepOutput is how long its output is kept; 0: as long as the store's default.
	KeepOutput time.Duration

	Began, Finalized, CancelAsked time.Time // when it entered the states; zero: not yet
	Faults                        []Fault   // of an invalid input

	Total, Completed, Failed int
	Abandoned                int // of the failed lines, those unanswered at the end of the batch
	Tokens                   Tokens
	Model                    string // of all lines; empty: several

	// OutID and ErrID are the files that it creates, unless they would be empty.
	OutID, ErrID       string
	OutBytes, ErrBytes int64

	Lines  []byte     // a bit for each line that is done
	Pieces [2][]Piece // of its output and of its errors
	// Sealed is when nothing more was recorded, and Outcome its final status from then on.
	Sealed  time.Time
	Outcome string
}

// Request is the part of a request that is answered later.
type Request struct {
	Method string
	URI    string
	Header http.Header
	Body   Piece // until it has ended
	// Code and AnswerHeader are the status and the header of its answer.
	Code         int
	AnswerHeader http.Header
}

// Response is the part of an answer that is kept. Only responses have more than Answer.
type Response struct {
	// Previous is the response that it continues from; empty: it begins a conversation.
	Previous string
	// Background means that its client did not wait for it.
	Background bool
	// Answer is the answer's body, after InputBytes bytes of the response's input.
	Answer     Piece
	InputBytes int64
}

// Piece is a part of a body, stored as an object.
type Piece struct {
	Name  string
	Bytes int64
}

// Tokens are the tokens reported in answers.
type Tokens struct{ Input, Cached, Output, Reasoning int64 }

// Fault is an error in a line of an input, or in all of it (line 0).
type Fault struct {
	Code, Message, Param string
	Line                 int
}

// Done reports whether it has ended.
func (j *Job) Done() bool { return !j.Ended.IsZero() }

// IsBatch reports whether an id is a batch's.
func IsBatch(id string) bool {
	return strings.HasPrefix(id, PrefixBatch) || strings.HasPrefix(id, PrefixMessages)
}

// IsResponse reports whether an id is a response's.
func IsResponse(id string) bool { return strings.HasPrefix(id, PrefixResponse) }

// MessagesInput is the purpose of the input of a batch of messages, and PurposeMessages of its output: see [File.Hidden].
const (
	MessagesInput   = "message_batch"
	PurposeMessages = "message_batch_output"
)

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

func (b *Batch) lineDone(line int) bool {
	return line/8 < len(b.Lines) && b.Lines[line/8]&(1<<(line%8)) != 0
}

// addResult counts a result, and marks its line as done.
func (b *Batch) addResult(r Result) {
	if grow := r.Line/8 + 1 - len(b.Lines); grow > 0 {
		b.Lines = append(b.Lines, make([]byte, grow)...)
	}
	b.Lines[r.Line/8] |= 1 << (r.Line % 8)
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

// outputs returns the files that a batch creates, as far as they are not empty.
func (j *Job) outputs(keep time.Duration) (all []File) {
	if j.KeepOutput > 0 {
		keep = min(keep, j.KeepOutput)
	}
	purpose := "batch_output"
	if j.Messages {
		purpose = PurposeMessages
	}
	for k, f := range []File{{ID: j.OutID, Name: j.ID + "_output.jsonl", Bytes: j.OutBytes}, {ID: j.ErrID, Name: j.ID + "_error.jsonl", Bytes: j.ErrBytes}} {
		if f.Bytes > 0 {
			f.Owner, f.Purpose, f.Created, f.Expires, f.Of, f.Pieces = j.Owner, purpose, j.Sealed, j.Sealed.Add(keep), j.ID, j.Pieces[k]
			all = append(all, f)
		}
	}
	return all
}
