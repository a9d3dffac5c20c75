package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/relay"
)

// events is a stream on its way through.
type events struct {
	*exchange
	*relay.Events
	style api.Stream
	sent  bool
}

// stream passes a stream on, each event as soon as it is whole: if the stream
// breaks off, the error event stands on its own. Of an event that is larger than
// a buffer the parts are passed on.
func (x *exchange) stream(ctx context.Context, resp *http.Response, style api.Stream) {
	delete(resp.Header, "Content-Length") // an error event may have to follow
	largest := largeBuffer
	if x.report.asked.Field != "" { // what is to be taken out stands at the end of an event
		largest = maxLine
	}
	from := relay.NewSource(ctx, moving{x, resp}, smallBuffer, largest, nil)
	defer from.Close()
	e := events{exchange: x, Events: relay.NewEvents(from, style), style: style}
	e.Rewrite = e.failures
	for {
		p, end := e.Next()
		if !e.pass(resp, p, end != nil) {
			return
		}
		if end != nil {
			e.end(ctx, resp, end)
			return
		}
	}
}

// pass sends whole events, the last ones of the stream too, and says whether the client is still there.
func (e *events) pass(resp *http.Response, p []byte, last bool) bool {
	made := e.meter.Tokens()
	e.meter.See(p, time.Since(e.began))
	if e.style == api.StreamCompletion || e.style == api.StreamResponses {
		p = e.report.take(p, last, &e.meter)
	}
	e.live.generated(e.meter.Tokens() - made)
	if len(p) == 0 {
		return true
	}
	if e.stated {
		e.moves(e.state.See(p))
	}
	if !e.sent {
		e.header(resp)
		e.sent = true
	}
	return e.send(p)
}

// failures puts what a runtime says of its failures, in whole events, into the words that clients know, as
// [exchange.failure] does where the answer has not begun.
func (e *events) failures(p []byte) []byte {
	x := e.exchange
	if x.proxy.cfg.Dialect == nil || e.style == api.StreamPlain || relay.Index(p, []byte(`"error"`)) < 0 {
		return p
	}
	var out []byte
	for line := range bytes.Lines(p) {
		data, found := line, true
		if e.style != api.StreamLines {
			data, found = bytes.CutPrefix(line, []byte("data:"))
		}
		data = bytes.TrimSpace(data)
		what, failed := []byte(nil), false
		if found {
			what, failed = jsonfield.Find(data, "error")
			if kind, _ := jsonfield.Find(data, "type"); !failed && e.style == api.StreamResponses && string(kind) == `"error"` {
				what, failed = data, true
			}
		}
		if !failed || string(what) == "null" {
			out = append(out, line...)
			continue
		}
		x.log("runtime ends a stream with an error", fmt.Errorf("%.500q", data))
		known := bytes.TrimSpace(x.proxy.cfg.Dialect.Failure(x.r.URL.Path, statusOf(what), data))
		switch e.style {
		case api.StreamResponses:
			out = append(unnamed(out), e.numbered(known, e.NumberAfter(out))...)
		case api.StreamMessages:
			out = append(append(unnamed(out), "event: error\ndata: "...), known...)
		case api.StreamLines:
			out = append(out, known...)
		default:
			out = append(append(out, "data: "...), known...)
		}
		out = append(out, line[len(bytes.TrimRight(line, "\r\n")):]...)
	}
	return out
}

// unnamed takes the name away that an event begins with at the end of p.
func unnamed(p []byte) []byte {
	at := bytes.LastIndexByte(bytes.TrimRight(p, "\r\n"), '\n') + 1
	if bytes.HasPrefix(p[at:], []byte("event:")) {
		return p[:at]
	}
	return p
}

// numbered makes the event of OpenAI's responses with the number next of an error body, without its end.
func (e *events) numbered(body []byte, next int) []byte {
	var b struct {
		Error struct {
			Message, Type string
			Param, Code   *string
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &b) // the dialect wrote it; of anything else, the message is empty
	known := &api.Error{Status: http.StatusInternalServerError, Type: b.Error.Type, Message: b.Error.Message}
	if b.Error.Param != nil {
		known.Param = *b.Error.Param
	}
	if b.Error.Code != nil {
		known.Code = *b.Error.Code
	}
	return bytes.TrimRight(e.style.Error(known, next), "\n")
}

// statusOf is the status that an error object names as its code, as vLLM does; 500 where it names none.
func statusOf(what []byte) int {
	var e struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(what, &e) == nil && e.Code >= 400 && e.Code < 600 {
		return e.Code
	}
	return http.StatusInternalServerError
}

// send says whether the client is still there.
func (x *exchange) send(p []byte) bool {
	if !x.write(p) {
		return false
	}
	x.flush()
	return true
}

// end ends the stream: 1. it was whole; 2. the client left; 3. nothing was sent,
// so there is still a status to be had; 4. the client is told by an error event, or, where
// another instance can go on with the stream, the activator by the connection's end.
func (e *events) end(ctx context.Context, resp *http.Response, err error) {
	x := e.exchange
	switch {
	case errors.Is(err, io.EOF): // 1.
		if !e.sent {
			x.header(resp)
		}
		x.trailer(resp)
		return
	case x.r.Context().Err() != nil: // 2.
		x.outcome.Status, x.outcome.abort = api.StatusClientClosed, true
		return
	case !e.sent: // 3.
		x.brokenBeforeFirstByte(ctx, err)
		return
	}
	failure := api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the runtime ended the stream before the answer was complete") // 4.
	switch {
	case x.untold != "":
		failure.Message += ", and does not go on elsewhere: " + x.untold
	case x.proxy.cfg.Inside && x.proxy.cfg.Tenants:
		failure.Message += ", and does not go on elsewhere: the function has a handler"
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		failure = api.AsError(ctx.Err())
	}
	x.outcome.Code = failure.Code
	if x.stated && failure.Code == api.CodeStreamCut && x.giving() {
		x.outcome.Code, x.outcome.abort = api.CodeMoved, true
		x.send([]byte(control.MovedComment + "\n\n"))
		return
	}
	if x.stated && failure.Code == api.CodeStreamCut {
		x.log("stream cut, for another instance to go on with", err)
		x.outcome.abort = true
		return
	}
	x.proxy.cfg.Logger.Warn("stream cut", "path", x.path.Pattern, "code", failure.Code, "error", err)
	x.send(e.style.Error(failure, e.Number()))
}
