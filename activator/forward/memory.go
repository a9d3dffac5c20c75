package forward

import "context"

// held is the memory that an answer holds beyond its first buffer. It belongs to one goroutine at a time.
type held struct {
	ctx     context.Context
	account Memory // nil: nobody counts
	bytes   int64
	refused bool // there was none once
}

// Take charges n bytes.
func (h *held) Take(n int64) error {
	if h.account == nil {
		return nil
	}
	if err := h.account.Take(h.ctx, n); err != nil {
		h.refused = true
		return err
	}
	h.bytes += n
	return nil
}

// Give takes n bytes off.
func (h *held) Give(n int64) {
	if h.account != nil && n > 0 {
		h.account.Give(n)
		h.bytes -= n
	}
}

func (h *held) release() { h.Give(h.bytes) }
