package localhttp

import (
	"bytes"
	"fmt"
	"io"

	"github.com/rouse-dev/rouse/api"
)

const (
	// smallHeader is what the header of an answer may take without anybody being asked.
	smallHeader = 16 << 10
	// headerCost is what a larger one takes, about, while it is read and after.
	headerCost = 2 * int64(api.MaxAnswerHeader)
)

// maxLines bounds the lines of an answer's header, each of which takes more memory than its bytes.
const maxLines = 1000

var errHeaderSize = fmt.Errorf("the header of the answer has more than %s or %d lines", api.MaxAnswerHeader, maxLines)

// header reads from a connection. From begin to end it reads no more than one answer's header may
// have, interim answers included.
type header struct {
	from  io.Reader
	under bool // the header is read
	left  int  // bytes that may still come
	lines int  // that have come, but for those of the last read: the header's end may be among them
	last  int  // lines of the last read
	// charge is asked before a header gets large; nil: nobody, or it was.
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
