package leader

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/stream"
)

// endHonestly lets a stream that its leader leaves unfinished end with an error
// event. What is no stream ends with a broken connection, which needs no words.
func endHonestly(resp *http.Response) error {
	kind := resp.Header.Get("Content-Type")
	style := api.EventsOf(resp.Request.URL.Path)
	switch {
	case resp.Header.Get("Content-Encoding") != "":
		return nil // not ours to write into
	case strings.HasPrefix(kind, "application/x-ndjson"):
		style = api.StreamLines
	case !strings.HasPrefix(kind, "text/event-stream"):
		return nil
	}
	resp.Body = &honest{
		body: resp.Body, style: style, judge: stream.NewJudge(style), split: stream.Splitter{Lines: style == api.StreamLines},
	}
	return nil
}

// honest is the body of a stream. It gives out whole events as they come; what
// follows the last whole one when the connection breaks is dropped.
type honest struct {
	body  io.ReadCloser
	style api.Stream
	judge stream.Judge
	split stream.Splitter

	buf   []byte // read
	given int    // of buf: given out
	whole int    // of buf: whole events, given out or not
	err   error  // of the body; nothing is read after it
}

const (
	readSize = 4 << 10
	// largestEvent is how much of one event is kept back; a larger one goes out in parts.
	largestEvent = 1 << 20
)

func (h *honest) Read(p []byte) (int, error) {
	for h.given == h.whole {
		if h.err != nil {
			return 0, io.EOF
		}
		h.fill()
	}
	n := copy(p, h.buf[h.given:h.whole])
	h.judge.See(p[:n])
	h.given += n
	return n, nil
}

// fill reads once and finds out how much may be given out: 1. whole events; 2. all,
// where the body has ended well, or one event is too large; 3. an error event,
// where it has not and the client can't know that by what it has.
func (h *honest) fill() {
	rest := copy(h.buf, h.buf[h.given:])
	h.given, h.whole = 0, 0
	h.buf = slices.Grow(h.buf[:rest], readSize)
	n, err := h.body.Read(h.buf[rest:cap(h.buf)])
	h.buf, h.err = h.buf[:rest+n], err
	if end := h.split.Split(h.buf[rest:]); end > 0 { // 1.
		h.whole = rest + end
	}
	switch {
	case err == io.EOF, err == nil && len(h.buf) > largestEvent: // 2.
		h.whole = len(h.buf)
	case err != nil: // 3.
		h.buf = h.buf[:h.whole]
		end := h.judge
		end.See(h.buf)
		if !end.Whole(false) {
			h.buf = append(append(h.buf, end.Rest()...), h.style.Error(errCut, end.Next())...)
			h.whole = len(h.buf)
		}
	}
}

func (h *honest) Close() error { return h.body.Close() }

var errCut = api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the worker that led has died before the answer was complete")
