package worker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// Protocol must be in both hellos.
const Protocol = 1

// MaxFrame is in bytes after the length.
const MaxFrame = 1 << 28

// Kind says what a frame's payload is.
type Kind byte

const (
	KindHello Kind = 1 + iota
	KindBatch
	KindOutput
	KindOp
	KindReply
	KindHeartbeat
)

// A Conn carries frames. One goroutine may receive while others send and close.
type Conn interface {
	// Send may wait for the other side to read. It does not keep payload.
	Send(kind Kind, payload []byte) error
	// Receive's payload is valid until the next call. After the other side closed it fails with io.EOF.
	Receive() (kind Kind, payload []byte, err error)
	// Close makes waiting calls fail, here and there. It may be called twice.
	Close()
}

// NewConn owns rw.
func NewConn(rw io.ReadWriteCloser) Conn {
	return &stream{rw: rw, in: bufio.NewReaderSize(rw, 64<<10)}
}

type stream struct {
	rw   io.ReadWriteCloser
	in   *bufio.Reader
	head [5]byte
	body []byte

	mu  sync.Mutex // one frame at a time is sent
	out []byte
}

func (s *stream) Send(kind Kind, payload []byte) error {
	if len(payload) >= MaxFrame {
		return fmt.Errorf("send a frame of %d bytes: at most %d are allowed", len(payload)+1, MaxFrame)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = binary.LittleEndian.AppendUint32(s.out[:0], uint32(len(payload)+1))
	s.out = append(append(s.out, byte(kind)), payload...)
	if _, err := s.rw.Write(s.out); err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	if cap(s.out) > 1<<20 { // drops a long prompt's memory
		s.out = nil
	}
	return nil
}

func (s *stream) Receive() (Kind, []byte, error) {
	if _, err := io.ReadFull(s.in, s.head[:]); err != nil {
		if err == io.EOF || errors.Is(err, syscall.ECONNRESET) { // the other side closed without reading everything
			return 0, nil, io.EOF
		}
		return 0, nil, fmt.Errorf("receive a frame: %w", err)
	}
	n := int(binary.LittleEndian.Uint32(s.head[:4]))
	if n < 1 || n > MaxFrame {
		return 0, nil, fmt.Errorf("receive a frame of %d bytes: want 1 to %d", n, MaxFrame)
	}
	if err := s.read(n - 1); err != nil {
		return 0, nil, fmt.Errorf("receive a frame of %d bytes: %w", n, err)
	}
	return Kind(s.head[4]), s.body, nil
}

// read takes memory as bytes come: a length may lie.
func (s *stream) read(n int) error {
	const piece = 1 << 20
	if cap(s.body) > piece && n <= piece {
		s.body = nil
	}
	s.body = s.body[:0]
	for n > 0 {
		m := min(n, piece)
		at := len(s.body)
		if cap(s.body)-at < m {
			s.body = append(s.body, make([]byte, m)...)
		} else {
			s.body = s.body[:at+m]
		}
		if _, err := io.ReadFull(s.in, s.body[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		n -= m
	}
	return nil
}

func (s *stream) Close() { _ = s.rw.Close() }

// Pipe returns two connected Conns in this process.
func Pipe() (engine, worker Conn) {
	there, back := make(chan *[]byte, pipeRoom), make(chan *[]byte, pipeRoom)
	done := &ending{ch: make(chan struct{})}
	return &pipe{out: there, in: back, done: done}, &pipe{out: back, in: there, done: done}
}

// In frames: more than an engine sends ahead.
const pipeRoom = 8

var errClosedConn = errors.New("the connection is closed")

// pipe is one end of a connection in memory. Its channels are never closed.
type pipe struct {
	out  chan<- *[]byte
	in   <-chan *[]byte
	done *ending
	body *[]byte // received last
}

type ending struct {
	once sync.Once
	ch   chan struct{} // closed by the end that closes first
}

var frames = sync.Pool{New: func() any { return new([]byte) }}

func (p *pipe) Send(kind Kind, payload []byte) error {
	select {
	case <-p.done.ch:
		return fmt.Errorf("send a frame: %w", errClosedConn)
	default:
	}
	buf := frames.Get().(*[]byte)
	*buf = append(append((*buf)[:0], byte(kind)), payload...)
	select {
	case p.out <- buf:
		return nil
	case <-p.done.ch:
		return fmt.Errorf("send a frame: %w", errClosedConn)
	}
}

func (p *pipe) Receive() (Kind, []byte, error) {
	if p.body != nil && cap(*p.body) <= 1<<20 {
		frames.Put(p.body)
	}
	p.body = nil
	select {
	case p.body = <-p.in:
	case <-p.done.ch:
		select {
		case p.body = <-p.in: // sent before the end
		default:
			return 0, nil, io.EOF
		}
	}
	return Kind((*p.body)[0]), (*p.body)[1:], nil
}

func (p *pipe) Close() { p.done.once.Do(func() { close(p.done.ch) }) }
