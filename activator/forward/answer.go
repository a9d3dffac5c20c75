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

// Answer is an instance's answer whose first body bytes have arrived, or which has none.
type Answer struct {
	resp   *http.Response
	kind   api.Stream
	plain  bool
	media  string        // if readable
	from   *relay.Source // nil once closed
	usage  *relay.Usage
	counts bool
	state  *relay.State
	header headerMemory
	number int
}

const (
	// A shorter answer of known length is read whole before the client sees a byte.
	smallBuffer = 16 << 10
	maxEvent    = 1 << 20
)

func newAnswer(ctx context.Context, resp *http.Response, call Call, header headerMemory) *Answer {
	a := &Answer{resp: resp, kind: call.Kind, plain: call.Plain, usage: call.Usage, counts: call.Counts, state: call.State, header: header}
	if said := resp.Header.Get(control.HeaderUsage); said != "" && call.Usage != nil && (resp.StatusCode/100 == 2 || resp.StatusCode == api.StatusClientClosed) {
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

// The first byte may take any time.
type pausing struct {
	from   io.Reader
	idle   time.Duration
	paused func()
	timer  *time.Timer // nil before the first byte
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

func (a *Answer) first() error {
	want := 1
	if n := a.resp.ContentLength; n > 0 && n <= smallBuffer {
		want = int(n)
	}
	a.from.Fill(want)
	return a.from.Broken()
}

// Status returns the HTTP status.
func (a *Answer) Status() int { return a.resp.StatusCode }

// Events reports whether the body is a readable event stream.
func (a *Answer) Events() bool { return a.media == "text/event-stream" }

// Waited returns the wait for a turn at the instance.
func (a *Answer) Waited() time.Duration {
	ms, _ := strconv.Atoi(a.resp.Header.Get(control.HeaderQueue))
	return time.Duration(ms) * time.Millisecond
}

// Lines reports whether the body is lines of JSON, as Ollama's.
func (a *Answer) Lines() bool {
	return a.resp.StatusCode == http.StatusOK && a.media == "application/x-ndjson"
}

// Header copies the answer's header without the connection's and the control plane's. Of a model server's it takes
// only what [control.Answered] accepts.
func (a *Answer) Header(h http.Header) {
	id := h[HeaderID]
	a.copyHeader(h, a.resp.Header)
	if id != nil {
		h[HeaderID] = id
	}
	if said := a.resp.Header[control.HeaderUsage]; a.counts && said != nil {
		h[control.HeaderUsage] = said
	}
}

// Trailer is complete once the body was copied to its end.
func (a *Answer) Trailer() http.Header {
	h := http.Header{}
	a.copyHeader(h, a.resp.Trailer)
	return h
}

func (a *Answer) copyHeader(to, from http.Header) {
	if !a.plain {
		maps.DeleteFunc(from, func(name string, _ []string) bool { return !control.Answered(name) && name != "Connection" })
	}
	relay.CopyHeader(to, from)
}

const errorLimit = 64 << 10

// Error reads the rest of the answer as an error: OpenAI's, SGLang's flat one, or text.
func (a *Answer) Error() *api.Error {
	a.from.Fill(errorLimit)
	return parseError(a.resp.StatusCode, a.from.Bytes())
}

// OpenAI's inside its wrapper, or flat.
type wireError struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Param   *string         `json:"param"`
	Code    json.RawMessage `json:"code"` // a string, a number (vLLM) or null
}

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
			_ = json.Unmarshal(body.Error, &w.Message) // Ollama's
		}
	}
	if w.Message != "" {
		e.Message, e.Type = w.Message, w.Type
		_ = json.Unmarshal(w.Code, &e.Code) // a number repeats the status
		if w.Param != nil {
			e.Param = *w.Param
		}
	}
	if e.Message == "" {
		e.Message = "the instance answered " + http.StatusText(status) + " without a message"
	}
	return e
}

// Sink is the client's connection.
type Sink interface {
	io.Writer
	Flush() error
}

// ErrClient marks an error on the client's side.
var ErrClient = errors.New("the client's connection failed")

// Copy copies the body to sink. The error is [ErrClient], or [relay.ErrCut] if the instance's side ended early. The
// last event or line written is whole.
func (a *Answer) Copy(sink Sink) error {
	if a.plain && len(a.from.Bytes()) == 0 {
		if err := sink.Flush(); err != nil {
			return errors.Join(ErrClient, err)
		}
	}
	switch {
	case a.Events():
		return a.copyEvents(sink, a.kind)
	case a.Lines():
		if a.usage != nil {
			a.usage.Style = api.StreamLines
		}
		return a.copyEvents(sink, api.StreamLines)
	}
	flush := a.resp.ContentLength < 0 // of unknown format: don't delay it
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
			return end
		}
	}
}

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

// Next returns the number of the next event, if events are numbered.
func (a *Answer) Next() int { return a.number }

// Close releases the instance. If the answer was not read to its end, cancel the request's context right after.
func (a *Answer) Close() {
	if a.from == nil {
		return
	}
	_ = a.resp.Body.Close()
	a.from.Close()
	a.from = nil
	a.header.release()
}
