package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

const (
	smallBuffer = 4 << 10  // what streams begin with
	largeBuffer = 32 << 10 // the longest event that is kept back until it is whole
)

// serverBuffer is what package net/http keeps of a small answer until the handler returns, with room to spare.
const serverBuffer = 2 << 10

// usageTail is how much of one part of an answer is seen again with the next:
// its usage may lie across.
const usageTail = 512

// pass passes an answer on that is no stream of events. With hold, what fits
// into one buffer is read to its end before anything is sent.
func (x *exchange) pass(ctx context.Context, resp *http.Response, hold bool) {
	from := relay.NewSource(ctx, moving{x, resp}, largeBuffer, largeBuffer, nil)
	defer from.Close()
	want := 1
	if hold {
		want = largeBuffer - usageTail
	}
	from.Fill(want)
	if err := from.Broken(); err != nil {
		x.brokenBeforeFirstByte(ctx, err)
		return
	}
	x.moves(false)
	x.header(resp)
	if from.Err() != nil {
		x.unread.Buffered = serverBuffer // it is the last write, and nothing is flushed
	}
	for sent := 0; ; {
		p := from.Bytes()
		if len(p) > sent {
			x.meter.Read(p)
			if !x.write(p[sent:]) {
				return
			}
		}
		switch {
		case from.Broken() != nil:
			x.log("runtime cut its answer", from.Err())
			x.outcome.Code, x.outcome.abort = api.CodeStreamCut, true
			return
		case from.Err() != nil:
			x.trailer(resp)
			return
		case !hold:
			x.flush()
		}
		sent = min(len(p), usageTail)
		from.Drop(len(p) - sent)
		from.Read()
	}
}

// read reads a part of the answer and tells the gate that the runtime moves.
func (x *exchange) read(resp *http.Response, p []byte) (int, error) {
	n, err := resp.Body.Read(p)
	if n > 0 {
		x.proxy.cfg.Gate.Moved()
	}
	return n, err
}

// maxFailure bounds the failures that are put into other words.
const maxFailure = 1 << 20

// failure passes a failure of the runtime's on, as clients know failures.
func (x *exchange) failure(ctx context.Context, resp *http.Response) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxFailure+1))
	if err != nil {
		x.brokenBeforeFirstByte(ctx, err)
		return
	}
	if m, is := x.proxy.cfg.Dialect.(Mortal); is && m.Dying(resp.StatusCode, raw) {
		x.proxy.cfg.Gate.Unreachable()
		x.brokenBeforeFirstByte(ctx, fmt.Errorf("it says that it ends: %.500q", raw))
		return
	}
	x.proxy.cfg.Gate.Moved()
	if busy(resp.StatusCode) && (x.beside || x.alongside()) {
		x.log("runtime has no room beside what it does", fmt.Errorf("%s: %.500q", resp.Status, raw))
		x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "the model server is busy: try again later").WithRetryAfter(time.Second))
		return
	}
	if len(raw) > maxFailure { // nobody's error body; it stays what it is
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(raw), resp.Body), resp.Body}
		x.pass(ctx, resp, false)
		return
	}
	text := x.proxy.cfg.Dialect.Failure(x.r.URL.Path, resp.StatusCode, raw)
	if !bytes.Equal(text, raw) {
		if resp.StatusCode >= http.StatusInternalServerError { // its own words were taken out
			x.log("runtime answers an error", fmt.Errorf("%s: %.500q", resp.Status, raw))
		}
		resp.Header.Set("Content-Type", "application/json")
	}
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	x.header(resp)
	if x.r.Method == http.MethodHead {
		return
	}
	x.write(text)
}

// busy says whether a status means that the request may have an answer later. A runtime that says so for want of room has not begun
// with the request; one that has nothing else to do means something else, which is the client's to know.
func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// alongside says whether other requests are in the runtime.
func (x *exchange) alongside() bool { return x.proxy.load.requests.Load() > 1 }

type readCloser struct {
	io.Reader
	io.Closer
}

// brokenBeforeFirstByte answers for a runtime whose answer broke off before any
// of it was sent.
func (x *exchange) brokenBeforeFirstByte(ctx context.Context, err error) {
	if ctx.Err() == nil && x.giveWay() {
		return
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		x.log("runtime cut its answer short", err)
		err = api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime cut its answer short")
	}
	x.fail(err)
}

// header sends status and headers.
func (x *exchange) header(resp *http.Response) {
	x.outcome.FirstByte = time.Since(x.began)
	head := x.w.Header()
	relay.CopyHeader(head, resp.Header)
	if busy(resp.StatusCode) && head["Retry-After"] == nil {
		head["Retry-After"] = []string{"1"} // clients that come again at once, and all together, help nobody
	}
	x.w.WriteHeader(resp.StatusCode)
}

// trailer sends what the runtime said behind its answer.
func (x *exchange) trailer(resp *http.Response) {
	for name, values := range resp.Trailer {
		x.w.Header()[http.TrailerPrefix+name] = values
	}
}

// unread is how long a client may take nothing of its answer before it counts as
// gone: its request has a place in the runtime.
const unread = time.Minute

// write says whether the client is still there.
func (x *exchange) write(p []byte) bool {
	x.unread.Move(http.NewResponseController(x.w), len(p))
	if _, err := x.w.Write(p); err != nil {
		x.outcome.Status, x.outcome.abort = api.StatusClientClosed, true
		return false
	}
	return true
}

// flush sends what was written on its way, through writers that wrap the connection's.
func (x *exchange) flush() {
	_ = http.NewResponseController(x.w).Flush() // a client that left is found when it is written to
}
