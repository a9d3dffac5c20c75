package forward

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Answer is an instance's answer whose first body bytes are there, or which has no body.
type Answer struct {
	resp *http.Response
	kind api.Stream
	buf  *[]byte // owned until Close
	n    int     // bytes in buf that were not handed on
	err  error   // why reading ended; io.EOF for a clean end
	next int     // the number of the next event, once it was copied
	held *held

	maxEvent int // see Call

	idle   time.Duration // see Call
	paused func()
	pause  *time.Timer // runs while a byte after the first is waited for; nil before that
}

// wholeLimit bounds the answers that are read to their end before the client sees a byte.
const wholeLimit = smallBuffer

// first reads the first bytes; of a short answer with a known length all of
// them, so that one that is cut is a failure that the client never sees.
func (a *Answer) first() error {
	want := 1
	if n := a.resp.ContentLength; n > 0 && n <= wholeLimit {
		want = int(n)
	}
	for a.n < want && a.err == nil {
		a.read()
	}
	if a.err != nil && !errors.Is(a.err, io.EOF) {
		return a.err
	}
	return nil
}

// read reads once into the free part of the buffer.
func (a *Answer) read() {
	if a.pause != nil {
		a.pause.Reset(a.idle)
	}
	k, err := a.resp.Body.Read((*a.buf)[a.n:])
	a.n += k
	a.err = err
	switch {
	case a.pause != nil:
		a.pause.Stop()
	case k > 0 && err == nil && a.idle > 0:
		a.pause = time.AfterFunc(a.idle, a.paused)
		a.pause.Stop()
	}
}

// Status is the HTTP status.
func (a *Answer) Status() int { return a.resp.StatusCode }

// Events says whether the body is a stream of server-sent events that we can read.
func (a *Answer) Events() bool {
	media, _, _ := mime.ParseMediaType(a.resp.Header.Get("Content-Type"))
	return media == "text/event-stream" && a.resp.Header.Get("Content-Encoding") == ""
}

// lines says whether the body is a generation in lines of JSON, as in Ollama's own API.
func (a *Answer) lines() bool {
	media, _, _ := mime.ParseMediaType(a.resp.Header.Get("Content-Type"))
	return a.resp.StatusCode == http.StatusOK && media == "application/x-ndjson" && a.resp.Header.Get("Content-Encoding") == ""
}

// Header copies the answer's header to h, without what belongs to the connection or to the control plane.
func (a *Answer) Header(h http.Header) {
	id := h[HeaderID]
	copyHeader(h, a.resp.Header)
	if id != nil {
		h[HeaderID] = id
	}
}

// errorLimit bounds what is read of an error body.
const errorLimit = 64 << 10

// error reads the answer as an error, whatever its shape: OpenAI's, the flat one of SGLang, or text.
func (a *Answer) error() *api.Error {
	for a.err == nil && a.n < errorLimit && a.room() {
		a.read()
	}
	return parseError(a.resp.StatusCode, (*a.buf)[:a.n])
}

// Error reads the rest of an answer that is no success as an error.
func (a *Answer) Error() *api.Error { return a.error() }

// wireError is an error body: OpenAI's with a wrapper, or flat.
type wireError struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Param   *string         `json:"param"`
	Code    json.RawMessage `json:"code"` // a string, a number (vLLM) or null
}

// parseError reads an error body of any shape.
func parseError(status int, raw []byte) *api.Error {
	var body struct {
		Error json.RawMessage `json:"error"`
		wireError
	}
	e := &api.Error{Status: status}
	if json.Unmarshal(raw, &body) != nil {
		e.Message = string(bytes.ToValidUTF8(bytes.TrimSpace(raw), nil))
	}
	w := body.wireError
	if len(body.Error) > 0 {
		if json.Unmarshal(body.Error, &w) != nil {
			_ = json.Unmarshal(body.Error, &w.Message) // Ollama's {"error":"text"}
		}
	}
	if w.Message != "" {
		e.Message, e.Type = w.Message, w.Type
		_ = json.Unmarshal(w.Code, &e.Code) // a number is the status again: no code
		if w.Param != nil {
			e.Param = *w.Param
		}
	}
	if e.Message == "" {
		e.Message = "the instance answered " + http.StatusText(status) + " without a message"
	}
	return e
}

// room makes room in the buffer for at least one byte, and says whether there was memory for it.
func (a *Answer) room() bool {
	size := len(*a.buf)
	if a.n < size {
		return true
	}
	if a.held.charge(int64(2*size)) != nil {
		return false
	}
	larger := make([]byte, 2*size)
	copy(larger, (*a.buf)[:a.n])
	giveBack(a.buf)
	if size > smallBuffer {
		a.held.give(int64(size))
	}
	a.buf = &larger
	return true
}

// Sink is where an answer goes: the client's connection.
type Sink interface {
	io.Writer
	// Flush sends what was written on its way.
	Flush() error
}

// ErrClient marks an error of the client's side.
var ErrClient = errors.New("the client's connection failed")

// ErrCut marks an answer that ended before it was complete.
var ErrCut = errors.New("the instance's answer was cut")

// Copy hands the body to sink. It returns nil once the answer is complete,
// [ErrClient] if the client can't be written to, and an error that is [ErrCut]
// if the instance's side ended too early. For an event stream, and for lines of
// JSON, the last thing written is then a whole one, so that the caller can add one.
func (a *Answer) Copy(sink Sink) error {
	if a.Events() {
		return a.copyEvents(sink, a.kind)
	}
	if a.lines() {
		return a.copyEvents(sink, api.StreamLines)
	}
	flush := a.resp.ContentLength < 0 // a stream of some kind: do not keep it back
	for {
		if a.n > 0 {
			if err := a.hand(sink, a.n, flush && a.err == nil); err != nil {
				return err
			}
		}
		switch {
		case a.err == nil:
			a.read()
		case errors.Is(a.err, io.EOF):
			return nil
		default:
			return errors.Join(ErrCut, a.err)
		}
	}
}

// Next is the number of an event that follows what was copied, where the stream's events have numbers.
func (a *Answer) Next() int { return a.next }

// Close lets go of the instance. The request's context should be cancelled
// right after, if the answer was not read to its end.
func (a *Answer) Close() {
	if a.buf == nil {
		return
	}
	_ = a.resp.Body.Close() // an error here says nothing that reading did not
	giveBack(a.buf)
	a.buf = nil
	a.held.release()
}

// Timing is where a request's time went.
type Timing struct {
	Hold  time.Duration // in the room, in all
	Wake  time.Duration // the part of Hold in which no instance was awake
	Queue time.Duration // the rest of Hold: waiting for a free slot
	First time.Duration // from the last dispatch to the first byte
}

// String writes the value of a Server-Timing header (W3C), in milliseconds.
func (t Timing) String() string {
	b := make([]byte, 0, 80)
	for _, m := range []struct {
		name string
		d    time.Duration
	}{{"hold", t.Hold}, {"wake", t.Wake}, {"queue", t.Queue}, {"ttft", t.First}} {
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, m.name...)
		b = append(b, ";dur="...)
		b = appendMillis(b, m.d)
	}
	return string(b)
}
