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
	smallBuffer = 4 << 10  // the first buffer of a stream
	largeBuffer = 32 << 10 // the longest event that is buffered whole
)

// serverBuffer is the size up to which package net/http buffers an answer until the handler returns, with room to spare.
const serverBuffer = 2 << 10

// pass passes on an answer that is not a stream of events. With hold, an answer that fits into one buffer is read to its end before
// anything is sent.
func (x *exchange) pass(ctx context.Context, resp *http.Response, hold bool) {
	from := relay.NewSource(ctx, x.moving(resp), largeBuffer, largeBuffer, nil)
	defer from.Close()
	want := 1
	if hold {
		want = largeBuffer
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
	for {
		p := from.Bytes()
		if x.meter.Part(p); len(p) > 0 && !x.write(p) {
			return
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
		from.Drop(len(p))
		from.Read()
	}
}

// moving is an answer's body that tells the gate of the runtime's progress.
type moving struct {
	io.ReadCloser
	gate Gate
}

func (x *exchange) moving(resp *http.Response) moving { return moving{resp.Body, x.cfg.Gate} }

// Read implements [io.Reader].
func (m moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.gate.Moved()
	}
	return n, err
}

// maxFailure bounds the size of failures that are rewritten.
const maxFailure = 1 << 20

// failure passes on a failure of the runtime, rewritten as an error that clients know.
func (x *exchange) failure(ctx context.Context, resp *http.Response) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxFailure+1))
	if err != nil {
		x.brokenBeforeFirstByte(ctx, err)
		return
	}
	if m, is := x.cfg.Dialect.(Mortal); is && m.Dying(resp.StatusCode, raw) {
		x.cfg.Gate.Unreachable()
		x.brokenBeforeFirstByte(ctx, fmt.Errorf("it announced its end: %.500q", raw))
		return
	}
	x.cfg.Gate.Moved()
	if busy(resp.StatusCode) && (x.beside || x.alongside()) {
		x.log("runtime has no room beside what it does", fmt.Errorf("%s: %.500q", resp.Status, raw))
		x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "the model server is busy: try again later").WithRetryAfter(time.Second))
		return
	}
	if len(raw) > maxFailure { // not an error body: pass it on unchanged
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(raw), resp.Body), resp.Body}
		x.pass(ctx, resp, false)
		return
	}
	text := x.cfg.Dialect.Failure(x.r.URL.Path, resp.StatusCode, raw)
	if !bytes.Equal(text, raw) {
		if resp.StatusCode >= http.StatusInternalServerError { // its text was removed for the client
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

// busy reports whether a status invites a retry. A busy runtime that answers so has not begun with the request. From an idle one the
// status means something else, and goes to the client.
func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// alongside reports whether other requests are in the runtime.
func (x *exchange) alongside() bool { return x.load.requests.Load() > 1 }

type readCloser struct {
	io.Reader
	io.Closer
}

// brokenBeforeFirstByte answers the client if the runtime's answer broke off before any of it was sent.
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

func (x *exchange) header(resp *http.Response) {
	x.outcome.FirstByte = time.Since(x.began)
	head := x.w.Header()
	relay.CopyHeader(head, resp.Header)
	if busy(resp.StatusCode) && head["Retry-After"] == nil {
		head["Retry-After"] = []string{"1"} // else clients retry at once, all together
	}
	x.w.WriteHeader(resp.StatusCode)
}

func (x *exchange) trailer(resp *http.Response) {
	for name, values := range resp.Trailer {
		x.w.Header()[http.TrailerPrefix+name] = values
	}
}

// unread is how long a client may read nothing of its answer before it counts as gone: its request holds a slot in the runtime.
const unread = time.Minute

// write writes p and reports whether the client is still there.
func (x *exchange) write(p []byte) bool {
	x.unread.Move(http.NewResponseController(x.w), len(p))
	defer x.unread.Done()
	if _, err := x.w.Write(p); err != nil {
		x.outcome.Status, x.outcome.abort = api.StatusClientClosed, true
		return false
	}
	return true
}

func (x *exchange) flush() {
	_ = x.unread.Flush(http.NewResponseController(x.w)) // a client that left is found at the next write
}

// moves tells the gate whether the request can continue at another instance from now on: as a stream with a known state, or from its
// start while nothing of an answer was sent.
func (x *exchange) moves(is bool) {
	if gate := x.Proxy.moves; gate != nil && x.movable != is {
		x.movable = is
		gate.Movable(is)
	}
}

// giving reports whether the runtime ended the request so that it continues elsewhere.
func (x *exchange) giving() bool { return x.movable && x.Proxy.moves.Moving() }

// giveWay refuses the request, for a retry elsewhere, if the runtime ended it for that and nothing of an answer was sent. It reports
// whether it did.
func (x *exchange) giveWay() bool {
	if !x.giving() {
		return false
	}
	x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeMoved, "the instance gives way: the request goes on elsewhere"))
	return true
}
