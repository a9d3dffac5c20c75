package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// stream passes a stream of events on, each line as soon as it is whole. A line
// without its end is kept back: if the stream breaks off there, the error event
// still stands on a line of its own.
func (x *exchange) stream(ctx context.Context, resp *http.Response) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	end := ending{style: x.route.style}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "" {
		end.style = plain // not a generation, or not ours to read
	}
	sent := false
	n := 0 // bytes of an unfinished line at the beginning of buf
	for {
		m, err := resp.Body.Read(buf[n:])
		n += m
		whole := bytes.LastIndexByte(buf[:n], '\n') + 1
		if err == io.EOF || (whole == 0 && n == len(buf)) {
			whole = n // the last line needs no end; one that fills the buffer goes in parts
		}
		end.scan(buf[:whole])
		if whole > 0 {
			if !sent {
				x.header(resp)
				sent = true
			}
			if !x.send(buf[:whole]) {
				return
			}
			n = copy(buf[:], buf[whole:n])
		}
		if err != nil {
			x.streamEnds(ctx, resp, sent, &end, err)
			return
		}
	}
}

// send says whether the client is still there.
func (x *exchange) send(p []byte) bool {
	if _, err := x.w.Write(p); err != nil {
		x.outcome.Status, x.outcome.abort = api.StatusClientClosed, true
		return false
	}
	x.flush()
	return true
}

// streamEnds: 1. the stream was whole; 2. the client left; 3. nothing was sent,
// so there is still a status to be had; 4. the client is told by an error event.
func (x *exchange) streamEnds(ctx context.Context, resp *http.Response, sent bool, end *ending, err error) {
	if end.whole(err == io.EOF) { // 1.
		if !sent {
			x.header(resp)
		}
		return
	}
	if x.r.Context().Err() != nil { // 2.
		x.outcome.Status, x.outcome.abort = api.StatusClientClosed, true
		return
	}
	if !sent { // 3.
		x.brokenBeforeFirstByte(ctx, err)
		return
	}
	event := api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the runtime ended the stream before the answer was complete") // 4.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		event = api.AsError(ctx.Err())
	}
	x.outcome.Code = event.Code
	x.proxy.cfg.Logger.Warn("stream cut", "path", x.route.pattern, "code", event.Code, "error", err)
	var apart []byte // ends the line and the event that were cut
	if end.inLine {
		apart = append(apart, '\n')
	}
	if end.inEvent {
		apart = append(apart, '\n')
	}
	x.send(append(apart, event.SSE()...))
}
