package engine

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/rouse-dev/rouse/engine/sample"
)

// Finish is the reason why a text ended.
type Finish string

// Reasons, as OpenAI names them.
const (
	FinishStop   Finish = "stop"   // an end token or a stop string
	FinishLength Finish = "length" // max_tokens
)

// Event is one token of one sequence.
type Event struct {
	// Index is the sequence's index within the stream.
	Index int
	// Choice is the token and, if asked for, its log probability. Token is -1 in an event without a token
	// ([Request.NoTokens]).
	sample.Choice
	// Text is the text that became certain with this token: whole characters, without anything that may begin a stop
	// string. It may be empty, or hold text of earlier tokens.
	Text string
	// Finish is set in the last event of the sequence.
	Finish Finish
	// StopString is the stop string that ended the text, if any.
	StopString string
	// Prompt holds a choice for each prompt token but the first, in the sequence's first event, if
	// [Request.ScorePrompt] is set.
	Prompt []sample.Choice
	// Cached is the number of prompt tokens that were not computed, in the sequence's first event. All sequences of a
	// request but the first share the first one's prompt.
	Cached int
	// Embedding is the prompt's vector, if [Request.Embed] asked for one.
	Embedding []float32
}

// ErrClosed is returned by [Stream.Next] after Close.
var ErrClosed = errors.New("the stream is closed")

// Stream carries the events of one request: in order within a sequence, in any order between sequences. It is for one
// reader; Close may be called from any goroutine. The engine never waits for the reader: events queue, at most one for
// each token that the request may have.
type Stream struct {
	ready  chan struct{} // the engine sends, never closes; 1: a late reader still finds the signal
	abort  func()        // drops the request's sequences
	unbind func() bool   // stops watching the request's context

	// Owned by the loop once it has the request.
	sequences []*sequence
	left      int // unfinished sequences

	mu     sync.Mutex
	events []Event
	next   int
	err    error // set once: after the last event, or at once if the request failed
}

func newStream() *Stream { return &Stream{ready: make(chan struct{}, 1)} }

// Next returns the next event. It blocks until there is one, the request's context ends or the engine stops. After the
// last event it returns [io.EOF]. Other errors are the context's cause, [ErrClosed], [ErrStopped], [ErrInterrupted],
// or the failure of a step.
func (s *Stream) Next() (Event, error) {
	for {
		s.mu.Lock()
		if s.next < len(s.events) {
			e := s.events[s.next]
			s.next++
			if s.next == len(s.events) {
				s.events, s.next = s.events[:0], 0
			}
			s.mu.Unlock()
			return e, nil
		}
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return Event{}, err
		}
		<-s.ready
	}
}

// All iterates over the events. An error comes as the last pair. Breaking out of the loop closes the stream.
func (s *Stream) All() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer s.Close()
		for {
			e, err := s.Next()
			if err == io.EOF {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Close cancels the request: the engine drops its sequences before its next step. Close does not wait for that.
// Closing a finished stream does nothing.
func (s *Stream) Close() { s.giveUp(ErrClosed) }

func (s *Stream) giveUp(err error) {
	if s.end(err, true) {
		s.abort()
	}
}

func (s *Stream) push(e *Event) {
	s.mu.Lock()
	if s.err == nil {
		s.events = append(s.events, *e)
	}
	s.mu.Unlock()
	s.signal()
}

// end ends the stream with err, or io.EOF after success; discard drops queued events. It reports whether the stream
// was open.
func (s *Stream) end(err error, discard bool) bool {
	s.mu.Lock()
	open := s.err == nil
	if open {
		s.err = err
	}
	if discard && s.err != io.EOF {
		s.events, s.next = nil, 0
	}
	s.mu.Unlock()
	s.signal()
	return open
}

func (s *Stream) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *Stream) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// bind cancels the request when ctx ends.
func (s *Stream) bind(ctx context.Context) {
	s.unbind = context.AfterFunc(ctx, func() { s.giveUp(context.Cause(ctx)) })
}
