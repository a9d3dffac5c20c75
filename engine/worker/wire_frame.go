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

// Protocol is the number that both hellos must have.
const Protocol = 1

// MaxFrame is the longest frame, in bytes after the length.
const MaxFrame = 1 << 28

// Kind says what a frame's payload is.
type Kind byte

// Kinds.
const (
	KindHello Kind = 1 + iota
	KindBatch
	KindOutput
	KindOp
	KindReply
	KindHeartbeat
)

// A Conn carries frames between an engine and a worker. One goroutine may
// receive while others send and close.
type Conn interface {
	// Send sends a frame. It may wait for the other side to read, and does not keep payload.
	Send(kind Kind, payload []byte) error
	// Receive waits for the next frame. The payload is valid until the next call. After the
	// other side closed it fails with io.EOF.
	Receive() (kind Kind, payload []byte, err error)
	// Close ends both directions: waiting calls fail, here and there. Twice is fine.
	Close()
}

// NewConn makes a Conn of a byte stream, which it then owns.
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
	if cap(s.out) > 1<<20 { // one long prompt does not keep its memory
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

// read fills body with n bytes. Memory is taken as they come: a length may lie.
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

func (s *stream) Close() { _ = s.rw.Close() } // sent bytes stay sent, and no more are expected

// Pipe returns two connected Conns within this process.
func Pipe() (engine, worker Conn) {
	there, back := make(chan *[]byte, pipeRoom), make(chan *[]byte, pipeRoom)
	done := &ending{ch: make(chan struct{})}
	return &pipe{out: there, in: back, done: done}, &pipe{out: back, in: there, done: done}
}

// pipeRoom is the number of frames that fit in one direction of a pipe: more than an engine sends ahead.
const pipeRoom = 8

// errClosedConn is returned to a closed pipe's sender.
var errClosedConn = errors.New("the connection is closed")

// pipe is one end of a connection in memory. A channel has one end as sender and the other as receiver; it is never
// closed.
type pipe struct {
	out  chan<- *[]byte
	in   <-chan *[]byte
	done *ending
	body *[]byte // received last
}

type ending struct {
	once sync.Once
	ch   chan struct{} // closed by whichever end closes first
}

// frames are the buffers of pipes, each a *[]byte.
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
		case p.body = <-p.in: // what was sent before the end still counts
		default:
			return 0, nil, io.EOF
		}
	}
	return Kind((*p.body)[0]), (*p.body)[1:], nil
}

func (p *pipe) Close() { p.done.once.Do(func() { close(p.done.ch) }) }
