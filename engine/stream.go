package engine

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/rouse-dev/rouse/engine/sample"
)

// Finish is why a text ended.
type Finish string

// As OpenAI names them.
const (
	FinishStop   Finish = "stop"   // an end token or stop string
	FinishLength Finish = "length" // max_tokens
)

// Event is one token of a sequence.
type Event struct {
	// Index is within the stream.
	Index int
	// Choice has the token and its log probability. Token is -1 with [Request.NoTokens].
	sample.Choice
	// Text became certain with this token: whole characters, none that may begin a stop string. It may be empty, or of
	// earlier tokens.
	Text string
	// Finish is set in a sequence's last event.
	Finish     Finish
	StopString string
	// Prompt scores each prompt token but the first, in the first event ([Request.ScorePrompt]).
	Prompt []sample.Choice
	// Cached counts the prompt tokens that were not computed, in the first event. A request's other sequences share the
	// first one's prompt.
	Cached int
	// Embedding is the vector for [Request.Embed].
	Embedding []float32
}

// ErrClosed is returned by [Stream.Next] after Close.
var ErrClosed = errors.New("the stream is closed")

// Stream has events in order within a sequence. It is for one reader; Close may be called from any goroutine. The
// engine never waits for the reader.
type Stream struct {
	ready  chan struct{} // the engine sends, never closes; size 1: a late reader finds it
	abort  func()        // drops the sequences
	unbind func() bool   // stops watching the context

	// Owned by the loop once it has them.
	sequences []*sequence
	left      int // unfinished

	mu     sync.Mutex
	events []Event
	next   int
	err    error // set once
}

func newStream() *Stream { return &Stream{ready: make(chan struct{}, 1)} }

// Next blocks until there is an event, the context ends or the engine stops. After the last event it returns [io.EOF].
// Other errors are the context's cause, [ErrClosed], [ErrStopped], [ErrInterrupted] or a failed step.
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

// Close cancels the request before the next step, and does not wait.
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

// end's err is io.EOF after success; discard drops queued events. It reports whether the stream was open.
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

func (s *Stream) bind(ctx context.Context) {
	s.unbind = context.AfterFunc(ctx, func() { s.giveUp(context.Cause(ctx)) })
}
