package localhttp

import (
	"bytes"
	"fmt"
	"io"

	"github.com/rouse-dev/rouse/api"
)

const (
	// smallHeader is the size of an answer's header that is not charged.
	smallHeader = 16 << 10
	// headerCost is the approximate memory of a larger header.
	headerCost = 2 * int64(api.MaxAnswerHeader)
)

// maxLines bounds the lines of an answer's header, each of which takes more memory than its bytes.
const maxLines = 1000

var errHeaderSize = fmt.Errorf("the header of the answer has more than %s or %d lines", api.MaxAnswerHeader, maxLines)

// header reads from a connection. Between begin and end it reads at most the allowed size of one answer's header,
// interim responses included.
type header struct {
	from  io.Reader
	under bool // a header is being read
	left  int  // bytes that may still come
	lines int  // lines so far, without the last read: it may contain the header's end
	last  int  // lines of the last read
	// charge is called once before a header gets large; nil: nothing is charged, or it already was.
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
