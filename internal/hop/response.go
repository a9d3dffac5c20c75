package hop

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// held is how much of an answer is kept back to send it with its length.
const held = 4 << 10

// mostLeft is how much of a body that the handler did not read is read to keep the connection.
const mostLeft = 256 << 10

type doneFlag = atomic.Bool

// response is the handler's side of an answer. It belongs to one goroutine at a time.
type response struct {
	peer    *peer
	request *http.Request
	body    *inbound
	cancel  context.CancelFunc
	header  http.Header

	status  int    // 0: not said
	fields  []byte // the header as it was when the status was said
	typed   bool   // it has a Content-Type, or is not to have one
	dated   bool
	length  int64 // as the handler said; -1: it did not
	wrote   int64 // of the body
	kept    []byte
	sent    bool // the header is with the kernel, or on its way
	chunked bool
	last    bool // the connection ends with this answer
	trailer []string
	err     error // of the client's side, or the handler's
}

// Header is the header to be sent; trailers once the status was said.
func (w *response) Header() http.Header { return w.header }

// WriteHeader says the status. An interim one (1xx) is sent at once.
func (w *response) WriteHeader(code int) {
	if w.status != 0 {
		w.peer.server.Logger.Debug("a handler says a second status", "path", w.request.URL.Path, "status", code)
		return
	}
	if code < 100 || code > 999 {
		panic(fmt.Sprintf("hop: status %d", code))
	}
	if code < 200 {
		w.interim(code)
		return
	}
	w.status = code
	if text := w.header.Get("Content-Length"); text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			w.length = n
		}
	}
	for _, line := range w.header["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			w.trailer = append(w.trailer, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	if strings.EqualFold(w.header.Get("Connection"), "close") || w.request.Close {
		w.last = true
	}
	_, w.typed = w.header["Content-Type"]
	w.typed = w.typed || w.header.Get("Content-Encoding") != ""
	_, w.dated = w.header["Date"]
	w.fields = appendFields(make([]byte, 0, 512), w.header, func(name string) bool {
		return name == "Content-Length" || name == "Transfer-Encoding" || name == "Connection" || strings.HasPrefix(name, http.TrailerPrefix) || slices.Contains(w.trailer, name)
	})
}

// interim sends a status that is not the last one.
func (w *response) interim(code int) {
	if !w.request.ProtoAtLeast(1, 1) || code == http.StatusSwitchingProtocols {
		return
	}
	if code == http.StatusContinue {
		w.body.ask = false
	}
	b := fmt.Appendf(nil, "HTTP/1.1 %03d %s\r\n", code, http.StatusText(code))
	_, _ = w.peer.out.Write(append(appendFields(b, w.header, func(name string) bool { return name == "Content-Length" || name == "Transfer-Encoding" }), "\r\n"...))
	w.flushed()
}

// appendFields appends a header's fields. What would end a line becomes a space.
func appendFields(b []byte, h http.Header, except func(string) bool) []byte {
	for name, values := range h {
		if !token(name) || except(name) {
			continue
		}
		for _, v := range values {
			b = append(append(b, name...), ": "...)
			if unsafe(v) {
				v = strings.Map(func(r rune) rune {
					if r < ' ' && r != '\t' || r == 0x7f {
						return ' '
					}
					return r
				}, v)
			}
			b = append(append(b, v...), "\r\n"...)
		}
	}
	return b
}

// bodyless says whether the answer has no body, whatever the handler writes.
func (w *response) bodyless() bool {
	return w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// Write takes the next part of the body.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case w.bodyless():
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.wrote+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.wrote += int64(len(p))
	if !w.sent && len(w.kept)+len(p) <= held {
		w.kept = append(w.kept, p...)
		return len(p), nil
	}
	w.send(false, p)
	w.part(p)
	return len(p), w.err
}

// send sends the header, and what was kept of the body. whole says that this is
// all of the answer; next is what comes then.
func (w *response) send(whole bool, next []byte) {
	if w.sent {
		return
	}
	w.sent = true
	isHead := w.request.Method == http.MethodHead
	b := fmt.Appendf(make([]byte, 0, len(w.fields)+256), "HTTP/1.1 %03d %s\r\n", w.status, http.StatusText(w.status))
	b = append(b, w.fields...)
	if !w.dated {
		b = append(time.Now().UTC().AppendFormat(append(b, "Date: "...), http.TimeFormat), "\r\n"...)
	}
	if sample := slices.Concat(w.kept, next[:min(len(next), 512)]); !w.typed && !w.bodyless() && len(sample) > 0 {
		b = append(append(append(b, "Content-Type: "...), http.DetectContentType(sample)...), "\r\n"...)
	}
	switch {
	case w.bodyless():
	case w.length >= 0:
		b = appendLength(b, w.length)
	case whole && len(w.trailer) == 0 && (!isHead || w.wrote > 0):
		b = appendLength(b, w.wrote)
	case isHead: // its length would be a guess
	case w.request.ProtoAtLeast(1, 1):
		w.chunked = true
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	default:
		w.last = true // only the end of the connection can be its end
	}
	if w.tooMuchLeft() || w.peer.server.isEnding() {
		w.last = true
	}
	switch {
	case w.last:
		b = append(b, "Connection: close\r\n"...)
	case !w.request.ProtoAtLeast(1, 1):
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	_, err := w.peer.out.Write(append(b, "\r\n"...))
	w.failed(err)
	w.part(w.kept)
	w.kept = nil
}

func appendLength(b []byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, "Content-Length: "...), n, 10), "\r\n"...)
}

// tooMuchLeft says whether what the handler did not read of the body can't be read, or is not worth it.
func (w *response) tooMuchLeft() bool {
	return !w.body.done.Load() && (w.body.ask || w.body.bad || w.request.ContentLength > mostLeft)
}

// part writes a part of the body.
func (w *response) part(p []byte) {
	if len(p) == 0 || w.request.Method == http.MethodHead || w.err != nil {
		return
	}
	out := w.peer.out
	if w.chunked {
		var size [20]byte
		_, _ = out.Write(append(strconv.AppendInt(size[:0], int64(len(p)), 16), "\r\n"...)) // a failure stays with the writer
	}
	_, err := out.Write(p)
	if w.chunked {
		_, err = out.WriteString("\r\n")
	}
	w.failed(err)
}

// failed notes that the client can't be written to.
func (w *response) failed(err error) {
	if err != nil && w.err == nil {
		w.err = err
		w.cancel()
	}
}

func (w *response) flushed() { w.failed(w.peer.out.Flush()) }

// FlushError sends what was written on its way.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.send(false, nil)
	w.flushed()
	return w.err
}

// Flush is FlushError for those who don't ask.
func (w *response) Flush() { _ = w.FlushError() }

// SetWriteDeadline bounds writes from now on, of this answer and those that follow.
func (w *response) SetWriteDeadline(t time.Time) error { return w.peer.net.SetWriteDeadline(t) }

// finish ends an answer that the handler is done with.
func (w *response) finish() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.send(true, nil)
	if w.length >= 0 && w.wrote < w.length && w.request.Method != http.MethodHead && !w.bodyless() {
		w.last = true // the client sees that something is missing
	}
	if w.chunked {
		b := append([]byte(nil), "0\r\n"...)
		end := http.Header{}
		for name, values := range w.header {
			if bare, found := strings.CutPrefix(name, http.TrailerPrefix); found {
				end[bare] = values
			} else if slices.Contains(w.trailer, name) {
				end[name] = values
			}
		}
		b = append(appendFields(b, end, func(string) bool { return false }), "\r\n"...)
		_, err := w.peer.out.Write(b)
		w.failed(err)
	}
	w.flushed()
	if w.err == nil {
		w.discard()
	}
}

// discard reads what the handler left of the request's body.
func (w *response) discard() {
	if w.body.done.Load() {
		return
	}
	if w.last || w.tooMuchLeft() {
		w.last = true
		w.peer.linger()
		return
	}
	_ = w.peer.net.SetReadDeadline(time.Now().Add(w.peer.server.HeaderTimeout))
	n, err := io.CopyN(io.Discard, w.body, mostLeft+1)
	if err != io.EOF || n > mostLeft {
		w.last = true
		return
	}
	_ = w.peer.net.SetReadDeadline(time.Time{})
}
