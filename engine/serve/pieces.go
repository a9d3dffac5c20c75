package serve

import (
	"errors"
	"net/http"
	"time"
	"unicode/utf8"
)

type timed struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // per write
}

func newTimed(w http.ResponseWriter, timeout time.Duration) timed {
	return timed{w: w, control: http.NewResponseController(w), timeout: timeout}
}

func (t *timed) write(data []byte) error {
	if err := t.control.SetWriteDeadline(time.Now().Add(t.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := t.w.Write(data)
	return err
}

// close removes the deadline: the connection may carry another request.
func (t *timed) close() {
	_ = t.control.SetWriteDeadline(time.Time{})
}

const pieceBytes = 32 << 10

// pieces writes a long JSON answer. Append to buf, call more after each part, and end at last.
type pieces struct {
	timed
	buf  []byte
	gone bool // the client left or does not read
}

func (s *Server) pieces(w http.ResponseWriter) *pieces {
	w.Header().Set("Content-Type", "application/json")
	return &pieces{timed: newTimed(w, s.cfg.WriteTimeout), buf: make([]byte, 0, 1024)}
}

// more reports whether the client still reads.
func (p *pieces) more() bool {
	if len(p.buf) >= pieceBytes {
		p.send()
	}
	return !p.gone
}

func (p *pieces) send() {
	p.gone = p.gone || p.write(p.buf) != nil
	p.buf = p.buf[:0]
}

func (p *pieces) end() {
	p.send()
	p.close()
}

func (p *pieces) list(name string, ids []int32, item func(dst []byte, id int32) []byte) {
	p.buf = append(appendString(append(p.buf, ','), name), ':', '[')
	for _, id := range ids {
		p.buf = comma(p.buf)
		if p.buf = item(p.buf, id); !p.more() {
			return
		}
	}
	p.buf = append(p.buf, ']')
}

// text's parts may cut characters. Invalid UTF-8 becomes U+FFFD.
func (p *pieces) text(parts func(yield func(string) bool)) {
	p.buf = append(p.buf, '"')
	var held []byte
	for part := range parts {
		if held = append(held, part...); len(held) < pieceBytes {
			continue
		}
		whole := wholeRunes(held)
		p.inside(string(held[:whole]))
		held = append(held[:0], held[whole:]...)
		if !p.more() {
			return
		}
	}
	p.inside(string(held))
	p.buf = append(p.buf, '"')
}

func (p *pieces) inside(s string) {
	n := len(p.buf)
	p.buf = appendString(p.buf, s)
	p.buf = append(p.buf[:n], p.buf[n+1:len(p.buf)-1]...)
}

// wholeRunes leaves out an incomplete character at the end.
func wholeRunes(b []byte) int {
	for n := len(b) - 1; n >= max(0, len(b)-utf8.UTFMax); n-- {
		if utf8.RuneStart(b[n]) {
			if utf8.FullRune(b[n:]) {
				break
			}
			return n
		}
	}
	return len(b)
}
