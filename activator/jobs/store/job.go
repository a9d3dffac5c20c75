package store

import (
	"net/http"
	"strings"
	"time"
)

// States are OpenAI's. A request has none until it has ended.
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

// Job is the record of a batch, a request that is answered later, or a response.
type Job struct {
	ID, Owner string
	// Caller is the creator, in the caller's format.
	Caller   []byte
	Created  time.Time
	Deadline time.Time // when it is given up
	Status   string
	Ended    time.Time
	Expires  time.Time // zero: not ended

	// Epoch counts the claims. Holder is the member with the last one; empty: none.
	Epoch  uint64
	Holder string

	Batch
	Request
	Response
}

const (
	PrefixBatch    = "batch_"
	PrefixMessages = "msgbatch_"
	PrefixAsync    = "async_"
	PrefixResponse = "resp_"
)

// Batch is the part of a batch.
type Batch struct {
	// Endpoint is the path of the lines.
	Input, Endpoint, Window string
	// Messages means that it is Anthropic's: its files are hidden.
	Messages   bool
	Metadata   map[string]string
	KeepOutput time.Duration

	Began, Finalized, CancelAsked time.Time
	Faults                        []Fault

	Total, Completed, Failed int
	Abandoned                int // of Failed, unanswered at the end
	Tokens                   Tokens
	Model                    string // of all lines; empty: several

	OutID, ErrID       string
	OutBytes, ErrBytes int64

	Lines  []byte     // a bit for each line that is done
	Pieces [2][]Piece // of the output and of the errors
	// Nothing is recorded after Sealed; Outcome is the final status.
	Sealed  time.Time
	Outcome string
}

// Request is the part of a request that is answered later.
type Request struct {
	Method       string
	URI          string
	Header       http.Header
	Body         Piece // until it has ended
	Code         int
	AnswerHeader http.Header
}

// Response is the part of an answer. Only responses have more than Answer.
type Response struct {
	Previous   string
	Background bool
	// The first InputBytes of Answer are a response's input.
	Answer     Piece
	InputBytes int64
}

// Piece is a part of a body, stored as an object.
type Piece struct {
	Name  string
	Bytes int64
}

// Tokens are reported in answers.
type Tokens struct{ Input, Cached, Output, Reasoning int64 }

// Fault is an error in a line of an input, or in all of it (line 0).
type Fault struct {
	Code, Message, Param string
	Line                 int
}

// Done reports whether the job has ended.
func (j *Job) Done() bool { return !j.Ended.IsZero() }

// IsBatch reports whether an id is a batch's.
func IsBatch(id string) bool {
	return strings.HasPrefix(id, PrefixBatch) || strings.HasPrefix(id, PrefixMessages)
}

// IsResponse reports whether an id is a response's.
func IsResponse(id string) bool { return strings.HasPrefix(id, PrefixResponse) }

// MessagesInput and PurposeMessages are the purposes of [File.Hidden] files.
const (
	MessagesInput   = "message_batch"
	PurposeMessages = "message_batch_output"
)

// Result is the result of a line.
type Result struct {
	Line      int // from 0
	OK        bool
	Text      []byte // its line of the output, or of the errors if not OK, with the newline
	Tokens    Tokens
	Abandoned bool
}

func (b *Batch) lineDone(line int) bool {
	return line/8 < len(b.Lines) && b.Lines[line/8]&(1<<(line%8)) != 0
}

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
