package forward

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Answer is an instance's answer whose first body bytes are there, or which has no body.
type Answer struct {
	resp   *http.Response
	kind   api.Stream
	plain  bool
	media  string        // of the body, where it is ours to read
	from   *relay.Source // nil once closed
	usage  *relay.Usage  // nil: nobody counts
	counts bool          // as in [Call.Counts]
	state  *relay.State  // of the stream; nil: nobody asked for it
	header headerMemory
	number int // of the next event, once it was copied
}

const (
	// smallBuffer is what an answer is read into at first. An answer of known length that fits is read to its end before
	// the client sees a byte.
	smallBuffer = 16 << 10
	// maxEvent is the default of [Call.MaxEvent].
	maxEvent = 1 << 20
)

func newAnswer(ctx context.Context, resp *http.Response, call Call, header headerMemory) *Answer {
	a := &Answer{resp: resp, kind: call.Kind, plain: call.Plain, usage: call.Usage, counts: call.Counts, state: call.State, header: header}
	if said := resp.Header.Get(control.HeaderUsage); said != "" && call.Usage != nil {
		call.Usage.Tell(said)
	}
	if resp.Header.Get("Content-Encoding") == "" {
		a.media, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	}
	var body io.Reader = resp.Body
	if call.Idle > 0 {
		body = &pausing{from: body, idle: call.Idle, paused: call.Paused}
	}
	a.from = relay.NewSource(ctx, body, smallBuffer, int(cmp.Or(call.MaxEvent, maxEvent)), call.Memory)
	return a
}

// pausing reads a body, and says so where it pauses for too long behind its first byte.
type pausing struct {
	from   io.Reader
	idle   time.Duration
	paused func()
	timer  *time.Timer // runs while a byte after the first is waited for; nil before that
}

func (p *pausing) Read(b []byte) (int, error) {
	if p.timer != nil {
		p.timer.Reset(p.idle)
	}
	n, err := p.from.Read(b)
	switch {
	case p.timer != nil:
		p.timer.Stop()
	case n > 0 && err == nil:
		p.timer = time.AfterFunc(p.idle, p.paused)
		p.timer.Stop()
	}
	return n, err
}

// first reads the first bytes; of a short answer with a known length all of
// them, so that one that is cut is a failure that the client never sees.
func (a *Answer) first() error {
	want := 1
	if n := a.resp.ContentLength; n > 0 && n <= smallBuffer {
		want = int(n)
	}
	a.from.Fill(want)
	return a.from.Broken()
}

// Status is the HTTP status.
func (a *Answer) Status() int { return a.resp.StatusCode }

// Events says whether the body is a stream of server-sent events that we can read.
func (a *Answer) Events() bool { return a.media == "text/event-stream" }

// Lines says whether the body is a generation in lines of JSON, as in Ollama's own API.
func (a *Answer) Lines() bool {
	return a.resp.StatusCode == http.StatusOK && a.media == "application/x-ndjson"
}

// Header copies the answer's header to h, without what belongs to the connection or to the control plane, and of a model server's
// answer what [control.Answered] names.
func (a *Answer) Header(h http.Header) {
	id := h[HeaderID]
	if !a.plain {
		maps.DeleteFunc(a.resp.Header, func(name string, _ []string) bool { return !control.Answered(name) && name != "Connection" })
	}
	relay.CopyHeader(h, a.resp.Header)
	if id != nil {
		h[HeaderID] = id
	}
	if said := a.resp.Header[control.HeaderUsage]; a.counts && said != nil {
		h[control.HeaderUsage] = said
	}
}

// errorLimit bounds what is read of an error body.
const errorLimit = 64 << 10

// error reads the answer as an error, whatever its shape: OpenAI's, the flat one of SGLang, or text.
func (a *Answer) error() *api.Error {
	a.from.Fill(errorLimit)
	return parseError(a.resp.StatusCode, a.from.Bytes())
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

// Sink is where an answer goes: the client's connection.
type Sink interface {
	io.Writer
	// Flush sends what was written on its way.
	Flush() error
}

// ErrClient marks an error of the client's side.
var ErrClient = errors.New("the client's connection failed")

// Copy hands the body to sink. It returns nil once the answer is complete,
// [ErrClient] if the client can't be written to, and an error that is [relay.ErrCut]
// if the instance's side ended too early. For an event stream, and for lines of
// JSON, the last thing written is then a whole one, so that the caller can add one.
func (a *Answer) Copy(sink Sink) error {
	switch {
	case a.Events():
		return a.copyEvents(sink, a.kind)
	case a.Lines():
		if a.usage != nil {
			a.usage.Style = api.StreamLines
		}
		return a.copyEvents(sink, api.StreamLines)
	}
	flush := a.resp.ContentLength < 0 // a stream of some kind: do not keep it back
	for {
		p := a.from.Bytes()
		if a.usage != nil {
			a.usage.Part(p)
		}
		if err := hand(sink, p, flush && a.from.Err() == nil); err != nil {
			return err
		}
		a.from.Drop(len(p))
		switch {
		case a.from.Err() == nil:
			a.from.Read()
		case a.from.Broken() == nil:
			return nil
		default:
			return errors.Join(relay.ErrCut, a.from.Err())
		}
	}
}

// copyEvents is Copy for server-sent events, and for lines of JSON.
func (a *Answer) copyEvents(sink Sink, kind api.Stream) error {
	events := relay.NewEvents(a.from, kind)
	defer func() { a.number = events.Number() }()
	if a.state != nil {
		events.Rewrite = a.state.Take
	}
	for {
		p, end := events.Next()
		if a.usage != nil {
			a.usage.See(p, 0)
			if !a.counts {
				p = a.usage.Take(p)
			}
		}
		if err := hand(sink, p, true); err != nil {
			return err
		}
		if a.state != nil && a.state.Again() {
			return fmt.Errorf("%w: the instance that was to go on has begun again", relay.ErrCut)
		}
		if end != nil {
			if errors.Is(end, io.EOF) {
				return nil
			}
			return end // it is a relay.ErrCut
		}
	}
}

// hand passes p on.
func hand(sink Sink, p []byte, flush bool) error {
	if len(p) == 0 {
		return nil
	}
	if _, err := sink.Write(p); err != nil {
		return errors.Join(ErrClient, err)
	}
	if flush {
		if err := sink.Flush(); err != nil {
			return errors.Join(ErrClient, err)
		}
	}
	return nil
}

// Next is the number of an event that follows what was copied, where the stream's events have numbers.
func (a *Answer) Next() int { return a.number }

// Close lets go of the instance. The request's context should be cancelled
// right after, if the answer was not read to its end.
func (a *Answer) Close() {
	if a.from == nil {
		return
	}
	_ = a.resp.Body.Close() // an error here says nothing that reading did not
	a.from.Close()
	a.from = nil
	a.header.release()
}

// Timing is where a request's time went.
type Timing struct {
	Hold  time.Duration // in the room, in all
	Wake  time.Duration // the part of Hold in which no instance was awake
	Queue time.Duration // the rest of Hold: waiting for a free slot
	First time.Duration // from the last dispatch to the first byte
}

// Since is what t has waited more than it had before.
func (t Timing) Since(before Timing) Timing {
	return Timing{Hold: t.Hold - before.Hold, Wake: t.Wake - before.Wake, Queue: t.Queue - before.Queue}
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

// appendMillis appends d in milliseconds with three decimals at most.
func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', -1, 64)
}
