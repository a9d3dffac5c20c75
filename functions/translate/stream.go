package translate

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// events are those that a stream of chat completions becomes. They are written into the buffer that they were made with.
type events interface {
	// chunk adds a chunk. The error says why it can't be told.
	chunk(c *completion) *api.Error
	// end ends the answer. The error says why it has not ended as it should.
	end() *api.Error
	// fail ends the answer with an error.
	fail(e *api.Error)
}

// stream reads a stream of chat completions. What comes is whole events mostly, but may be cut anywhere.
type stream struct {
	out  io.Writer
	to   events
	text *bytes.Buffer // what the events have written
	line []byte        // the beginning of a line whose end has not come
	over bool          // the answer has ended, or an error has

	told *teller // how its state is told; nil: it is not

	silent bool   // comments are not for the client
	ping   []byte // is told in the place of a comment; nil: the comment
}

func newStream(out io.Writer, begin func(*bytes.Buffer) events) *stream {
	text := &bytes.Buffer{}
	return &stream{out: out, to: begin(text), text: text}
}

// maxLine bounds one line of a stream, and maxAnswer an answer that is none: they are kept until they are whole.
const (
	maxLine   = 16 << 20
	maxAnswer = 64 << 20
)

func tooLong() *api.Error {
	return api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime's answer is too long to be translated: use /v1/chat/completions")
}

// errCut is what becomes of a stream that has ended before its answer.
func errCut() *api.Error {
	return api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the runtime ended the stream before the answer was complete")
}

// Write implements [io.Writer].
func (s *stream) Write(p []byte) (int, error) {
	s.text.Reset()
	for rest := p; len(rest) > 0; {
		at := bytes.IndexByte(rest, '\n')
		if at < 0 {
			s.line = append(s.line, rest...)
			if len(s.line) > maxLine {
				s.fail(tooLong())
				s.line = s.line[:0]
			}
			break
		}
		line := rest[:at]
		if len(s.line) > 0 {
			s.line = append(s.line, line...)
			line = s.line
		}
		s.see(bytes.TrimRight(line, "\r"))
		s.line, rest = s.line[:0], rest[at+1:]
	}
	if s.text.Len() > 0 {
		if _, err := s.out.Write(s.text.Bytes()); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// close ends what the handler has ended without an end of the stream's own.
func (s *stream) close() {
	s.text.Reset()
	if len(s.line) > 0 { // a last line needs no end
		s.see(bytes.TrimRight(s.line, "\r"))
	}
	s.fail(errCut())
	_, _ = s.out.Write(s.text.Bytes()) // a client that left needs no answer
}

// see looks at one line.
func (s *stream) see(line []byte) {
	if bytes.HasPrefix(line, []byte(":")) { // a comment that keeps the connection open
		switch {
		case bytes.HasPrefix(line, []byte(control.UsageComment)): // it is for the activator
			s.text.Write(append(bytes.Clone(line), '\n'))
		case s.told.takes(line, s.text):
		case s.silent:
		case s.ping != nil:
			if !s.over {
				s.text.Write(s.ping)
			}
		default:
			s.text.Write(line)
			s.text.WriteString("\n\n")
		}
		return
	}
	data, found := bytes.CutPrefix(line, []byte("data:"))
	if !found || s.over {
		return
	}
	data = bytes.TrimSpace(data)
	before := s.text.Len()
	if string(data) == "[DONE]" {
		if err := s.to.end(); err != nil {
			s.fail(err)
		}
		s.over = true
		s.told.last(s.text, before)
		return
	}
	var c completion
	switch err := json.Unmarshal(data, &c); {
	case err != nil:
		s.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime sent an event that is no chunk of a chat completion"))
	case len(c.Error) > 0 && string(c.Error) != "null":
		s.fail(fault(http.StatusInternalServerError, data))
	default:
		if err := s.to.chunk(&c); err != nil {
			s.fail(err)
		}
		s.told.chunk(s.text, before)
	}
}

// fail ends the stream with an error, unless it is over.
func (s *stream) fail(e *api.Error) {
	if !s.over {
		s.over = true
		s.to.fail(e)
	}
}
