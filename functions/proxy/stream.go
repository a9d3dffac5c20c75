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

type events struct {
	*exchange
	*relay.Events
	style api.Stream
	sent  bool
}

// stream passes each event on as soon as it is whole, so that an error event after a cut stands on its own.
func (x *exchange) stream(ctx context.Context, resp *http.Response, style api.Stream) {
	delete(resp.Header, "Content-Length")
	largest := largeBuffer
	if x.report.asked.Field != "" { // the fields to remove stand at the end of an event
		largest = maxLine
	}
	x.waiting.watch(x)
	defer x.waiting.forget(x)
	from := relay.NewSource(ctx, x.moving(resp), smallBuffer, largest, nil)
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

func (x *exchange) moved() {
	x.outcome.Code, x.outcome.abort = api.CodeMoved, true
	x.send([]byte(control.MovedComment + "\n\n"))
}

// pass reports whether the client is still there.
func (e *events) pass(resp *http.Response, p []byte, last bool) bool {
	made := e.meter.Tokens()
	if e.style == api.StreamCompletion || e.style == api.StreamResponses {
		p = e.report.take(p, last, &e.meter)
	}
	e.meter.See(p, time.Since(e.began))
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
	if !e.send(p) {
		return false
	}
	if e.movable && e.turns != nil && e.waiting.count.Load() > 0 && e.turns.GivesWay(e.turn, e.outcome.FirstByte) {
		e.moved()
		return false
	}
	return true
}

func (e *events) failures(p []byte) []byte {
	x := e.exchange
	if x.cfg.Dialect == nil || e.style == api.StreamPlain || relay.Index(p, []byte(`"error"`)) < 0 {
		return p
	}
	var out []byte
	for line := range relay.Lines(p) {
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
		known := bytes.TrimSpace(x.cfg.Dialect.Failure(x.r.URL.Path, statusOf(what), data))
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

// unnamed cuts off the name of an event that begins at p's end.
func unnamed(p []byte) []byte {
	at := bytes.LastIndexByte(bytes.TrimRight(p, "\r\n"), '\n') + 1
	if bytes.HasPrefix(p[at:], []byte("event:")) {
		return p[:at]
	}
	return p
}

// numbered returns body as event number next of OpenAI's responses, without the event's end.
func (e *events) numbered(body []byte, next int) []byte {
	var b struct {
		Error struct {
			Message, Type string
			Param, Code   *string
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &b)
	known := &api.Error{Status: http.StatusInternalServerError, Type: b.Error.Type, Message: b.Error.Message}
	if b.Error.Param != nil {
		known.Param = *b.Error.Param
	}
	if b.Error.Code != nil {
		known.Code = *b.Error.Code
	}
	return bytes.TrimRight(e.style.Error(known, next), "\n")
}

// statusOf returns an error object's code if it is a status, as in vLLM, else 500.
func statusOf(what []byte) int {
	var e struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(what, &e) == nil && e.Code >= 400 && e.Code < 600 {
		return e.Code
	}
	return http.StatusInternalServerError
}

func (x *exchange) send(p []byte) bool {
	if !x.write(p) {
		return false
	}
	x.flush()
	return true
}

// end ends the stream: 1. it was whole; 2. the client left; 3. nothing was sent: a status can still be; 4. an error event tells the
// client or, if another instance can continue, the aborted connection tells the activator.
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
	case x.cfg.Inside && x.cfg.Tenants:
		failure.Message += ", and does not go on elsewhere: the function has a handler"
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		failure = api.AsError(ctx.Err())
	}
	x.outcome.Code = failure.Code
	if x.stated && failure.Code == api.CodeStreamCut && x.giving() {
		x.moved()
		return
	}
	if x.stated && failure.Code == api.CodeStreamCut {
		x.log("stream cut, for another instance to go on with", err)
		x.outcome.abort = true
		return
	}
	x.cfg.Logger.Warn("stream cut", "path", x.path.Pattern, "code", failure.Code, "error", err)
	x.send(e.style.Error(failure, e.Number()))
}
