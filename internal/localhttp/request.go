package localhttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/rouse-dev/rouse/api"
)

const most = 256 << 10

// Simple reports whether [RoundTripOver] carries r, and a [Transport] without net/http's client.
func Simple(r *http.Request) bool {
	return r.URL != nil && r.URL.Scheme == "http" && r.URL.Host != "" && r.Method != http.MethodConnect &&
		(r.Body == nil || r.Body == http.NoBody || r.ContentLength > 0 && r.ContentLength <= most) &&
		len(r.TransferEncoding) == 0 && len(r.Trailer) == 0 && r.Header["Upgrade"] == nil && r.Header["Expect"] == nil
}

type message struct {
	bytes []byte
	turn  string // the ID that the answer must name
	whole *[]byte
}

var messages = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func (m message) release() {
	if cap(m.bytes) <= most/4 { // rare large ones are not kept
		*m.whole = m.bytes[:0]
		messages.Put(m.whole)
	}
}

var errHeader = errors.New("localhttp: a control character or separator where none may be")

func whole(r *http.Request) (message, error) {
	m := message{whole: messages.Get().(*[]byte), turn: newTurn()}
	b, err := appendHead((*m.whole)[:0], r, m.turn)
	if r.Body != nil && r.Body != http.NoBody {
		if err == nil {
			n := len(b)
			b = append(b, make([]byte, r.ContentLength)...)
			if _, err = io.ReadFull(r.Body, b[n:]); err != nil {
				err = fmt.Errorf("localhttp: read the request's body of %d bytes: %w", r.ContentLength, err)
			}
		}
		_ = r.Body.Close()
	}
	m.bytes = b
	if err != nil {
		m.release()
		return message{}, err
	}
	return m, nil
}

func newTurn() string { return strconv.FormatUint(rand.Uint64(), 36) }

func appendHead(b []byte, r *http.Request, turn string) ([]byte, error) {
	method, host, target := r.Method, r.Host, r.URL.RequestURI()
	if method == "" {
		method = http.MethodGet
	}
	if host == "" {
		host = r.URL.Host
	}
	if !httpguts.ValidHeaderFieldName(method) || !httpguts.ValidHeaderFieldValue(host) || !httpguts.ValidHeaderFieldValue(target) || strings.Contains(host, " ") || strings.Contains(target, " ") {
		return b, errHeader
	}
	b = append(append(append(b, method...), ' '), target...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), host...)
	b = append(b, "\r\n"...)
	for name, values := range r.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", api.HeaderTurn:
			continue // set by us
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return b, errHeader
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return b, errHeader
			}
			if name == "User-Agent" && v == "" {
				continue // net/http's way to send none
			}
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	b = append(append(append(b, api.HeaderTurn+": "...), turn...), "\r\n"...)
	if r.Body != nil && r.Body != http.NoBody {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), r.ContentLength, 10), "\r\n"...)
	} else if method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch {
		b = append(b, "Content-Length: 0\r\n"...)
	}
	if r.Close {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

// PerConnection reports whether a canonical header belongs to one connection (RFC 9110, 7.6.1).
func PerConnection(name string) bool {
	return slices.Contains([]string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	}, name)
}

// DropNamed removes the headers that the header Connection names in its lines.
func DropNamed(h http.Header, lines []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
}

const (
	smallHeader = 16 << 10
	headerCost  = 2 * int64(api.MaxAnswerHeader)
)

// maxLines bounds the lines of an answer's header, each of which takes more memory than its bytes.
const maxLines = 1000

var errHeaderSize = fmt.Errorf("the header of the answer has more than %s or %d lines", api.MaxAnswerHeader, maxLines)

// Between begin and end, header reads at most one answer's header, with interim responses.
type header struct {
	from  io.Reader
	under bool
	left  int // bytes that may still come
	lines int // without the last read, which may contain the header's end
	last  int // lines of the last read
	// charge is called once before a header gets large; nil: nothing to charge.
	charge func(int64) error
}

func (h *header) begin(charge func(int64) error) {
	*h = header{from: h.from, under: true, left: int(api.MaxAnswerHeader), charge: charge}
}

func (h *header) end() { h.under, h.charge = false, nil }

func (h *header) Read(p []byte) (int, error) {
	if !h.under {
		return h.from.Read(p)
	}
	if h.lines += h.last; h.left == 0 || h.lines > maxLines {
		return 0, errHeaderSize
	}
	if h.charge != nil && h.left <= int(api.MaxAnswerHeader)-smallHeader {
		charge := h.charge
		h.charge = nil
		if err := charge(headerCost); err != nil {
			return 0, err
		}
	}
	n, err := h.from.Read(p[:min(len(p), h.left)])
	h.left -= n
	h.last = bytes.Count(p[:n], []byte{'\n'})
	return n, err
}
