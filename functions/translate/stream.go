package translate

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Bounds of buffers in bytes: a line of a stream, and an answer that is not streamed.
const (
	maxLine   = 16 << 20
	maxAnswer = 64 << 20
)

func errTooLong() *api.Error {
	return api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime's answer is too long to be translated: use /v1/chat/completions")
}

func errCut() *api.Error {
	return api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the runtime ended the stream before the answer was complete")
}

// events translates a stream of chat completions into its output.
type events interface {
	add(c *completion) *api.Error
	end(e ending)
}

type ending struct {
	finish string
	stop   json.RawMessage
	usage  usage
}

type output struct {
	bytes.Buffer
	number int // server-sent events so far
}

// event adds the type to the data.
func (o *output) event(kind string, data map[string]any) {
	data["type"] = kind
	o.number++
	raw, _ := json.Marshal(data) // can't fail
	o.WriteString("event: " + kind + "\ndata: ")
	o.Write(raw)
	o.WriteString("\n\n")
}

type stream struct {
	w     io.Writer
	shape shape
	state *stateWriter // may be nil

	events  events
	written output
	line    []byte // the last one, incomplete
	ending  ending
	over    bool // the end, or an error, was sent
}

func newStream(w io.Writer, to shape, state *stateWriter) *stream {
	s := &stream{w: w, shape: to, state: state}
	s.events = to.events(&s.written)
	return s
}

func (s *stream) Write(p []byte) (int, error) {
	s.written.Reset()
	for line := range bytes.Lines(p) {
		s.line = append(s.line, line...)
		if bytes.HasSuffix(line, []byte("\n")) {
			s.readLine()
		} else if len(s.line) > maxLine {
			s.fail(errTooLong())
			s.line = s.line[:0]
		}
	}
	if s.written.Len() > 0 {
		if _, err := s.w.Write(s.written.Bytes()); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// close ends a stream whose handler has returned; without its own end it was cut.
func (s *stream) close() {
	s.written.Reset()
	s.readLine() // it may have no line end
	s.fail(errCut())
	_, _ = s.w.Write(s.written.Bytes()) // an error: the client left
}

func (s *stream) readLine() {
	line := bytes.TrimRight(s.line, "\r\n")
	s.line = s.line[:0]
	if bytes.HasPrefix(line, []byte(":")) {
		s.passComment(line)
		return
	}
	data, found := bytes.CutPrefix(line, []byte("data:"))
	if !found || s.over {
		return
	}
	data = bytes.TrimSpace(data)
	before := s.written.Len()
	if string(data) == "[DONE]" {
		if s.ending.finish == "" {
			s.fail(errCut())
		} else {
			s.events.end(s.ending)
		}
		s.over = true
		s.state.addEnd(&s.written, before)
		return
	}
	var c completion
	switch err := json.Unmarshal(data, &c); {
	case err != nil:
		s.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime sent an event that is no chunk of a chat completion"))
	case len(c.Error) > 0 && string(c.Error) != "null":
		s.fail(parseFailure(data).error(http.StatusInternalServerError))
	default:
		s.add(&c)
		s.state.addChunk(&s.written, before)
	}
}

func (s *stream) add(c *completion) {
	if c.Usage.Prompt > 0 {
		s.ending.usage = c.Usage
	}
	if len(c.Choices) > 0 && c.Choices[0].Finish != "" {
		s.ending.finish, s.ending.stop = c.Choices[0].Finish, c.Choices[0].Stop
	}
	if err := s.events.add(c); err != nil {
		s.fail(err)
	}
}

// passComment passes on what keeps the connection open, or is for the activator.
func (s *stream) passComment(line []byte) {
	ping := s.shape.ping
	switch {
	case bytes.HasPrefix(line, []byte(control.UsageComment)):
		s.written.Write(line)
		s.written.WriteByte('\n')
	case s.state.takeComment(line, &s.written) || s.shape.lines() || ping != "" && s.over:
	case ping != "":
		s.written.WriteString(ping)
	default:
		s.written.Write(line)
		s.written.WriteString("\n\n")
	}
}

func (s *stream) fail(e *api.Error) {
	if !s.over {
		s.over = true
		s.written.Write(s.shape.style.Error(e, s.written.number))
	}
}

// Kinds of blocks, named as the items of responses.
const (
	kindThoughts = "reasoning"
	kindText     = "message"
	kindCall     = "function_call"
)

// blocks send an answer as Anthropic and OpenAI's responses do: thoughts, text and calls one after another.
type blocks struct {
	out    *output
	to     blockWriter
	begun  bool
	kind   string // of the open block, or ""
	call   int    // the open call's index
	calls  int    // so far: the next call's least index
	scores scores // not sent yet
}

type blockWriter interface {
	beginAnswer(c *completion)
	openBlock(c *call) // of a call block
	addPart(part string)
	closeBlock(status string)
}

func (b *blocks) add(c *completion) *api.Error {
	if !b.begun {
		b.begun = true
		b.to.beginAnswer(c)
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := &c.Choices[0]
	b.addTo(kindThoughts, choice.Delta.reasoning())
	b.scores = append(b.scores, choice.Scores...)
	b.addTo(kindText, choice.Delta.Content)
	for i := range choice.Delta.Calls {
		call := &choice.Delta.Calls[i]
		if b.kind != kindCall || call.Index != b.call {
			if call.Index < b.calls {
				return api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime went back to a tool call that had ended, which can't be told here: use /v1/chat/completions or one call at a time")
			}
			b.call, b.calls = call.Index, call.Index+1
			b.open(kindCall, call)
		}
		if part := call.Function.Arguments; part != "" {
			b.to.addPart(part)
		}
	}
	return nil
}

func (b *blocks) addTo(kind, part string) {
	if part == "" {
		return
	}
	if b.kind != kind {
		b.open(kind, nil)
	}
	b.to.addPart(part)
}

func (b *blocks) open(kind string, c *call) {
	b.closeOpen("completed")
	b.kind = kind
	b.to.openBlock(c)
}

func (b *blocks) closeOpen(status string) {
	if b.kind != "" {
		b.to.closeBlock(status)
		b.kind = ""
	}
}
