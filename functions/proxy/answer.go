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
	smallBuffer = 4 << 10
	largeBuffer = 32 << 10 // the longest event that is buffered whole
)

// serverBuffer exceeds what net/http buffers of an answer until the handler returns.
const serverBuffer = 2 << 10

// With hold, pass reads an answer that fits into a buffer to its end first.
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
		x.unread.Buffered = serverBuffer // the last write, and nothing is flushed
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

type moving struct {
	io.ReadCloser
	gate Gate
}

func (x *exchange) moving(resp *http.Response) moving { return moving{resp.Body, x.cfg.Gate} }

func (m moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.gate.Moved()
	}
	return n, err
}

const maxFailure = 1 << 20

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

// A busy runtime that invites a retry has not begun with the request.
func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

func (x *exchange) alongside() bool { return x.load.requests.Load() > 1 }

type readCloser struct {
	io.Reader
	io.Closer
}

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

// unread is how long a client may read nothing of its answer, while it holds a slot, before it counts as gone.
const unread = time.Minute

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
	_ = x.unread.Flush(http.NewResponseController(x.w))
}

// moves tells the gate whether the request can continue at another instance from now on.
func (x *exchange) moves(is bool) {
	if gate := x.Proxy.moves; gate != nil && x.movable != is {
		x.movable = is
		gate.Movable(is)
	}
}

func (x *exchange) giving() bool { return x.movable && x.Proxy.moves.Moving() }

// giveWay refuses the request, for a retry elsewhere, if giving, and reports whether it did. Nothing was sent.
func (x *exchange) giveWay() bool {
	if !x.giving() {
		return false
	}
	x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeMoved, "the instance gives way: the request goes on elsewhere"))
	return true
}
