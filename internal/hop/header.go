package hop

import (
	"bytes"
	"fmt"
	"io"

	"github.com/rouse-dev/rouse/api"
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
}

func (h *header) begin() { *h = header{from: h.from, under: true, left: int(api.MaxAnswerHeader)} }
func (h *header) end()   { h.under = false }

func (h *header) Read(p []byte) (int, error) {
	if !h.under {
		return h.from.Read(p)
	}
	if h.lines += h.last; h.left == 0 || h.lines > maxLines {
		return 0, errHeaderSize
	}
	n, err := h.from.Read(p[:min(len(p), h.left)])
	h.left -= n
	h.last = bytes.Count(p[:n], []byte{'\n'})
	return n, err
}
