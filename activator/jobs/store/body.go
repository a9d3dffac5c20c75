package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Body is a stored body. ReadAt is safe for concurrent use, the other methods are not.
type Body interface {
	io.ReadSeekCloser
	io.ReaderAt
}

// body reads pieces: sequentially with one request per piece, at random with one per block.
type body struct {
	s      *Store
	keys   []string
	starts []int64 // of the pieces, then the end
	at     int64   // the offset of the next Read
	in     io.ReadCloser

	mu     sync.Mutex // guards blocks
	blocks []block    // the last used ones, the newest last
}

type block struct {
	at   int64
	text []byte
}

const (
	blockBytes = 256 << 10
	mostBlocks = 4
)

func (s *Store) openBody(owner, id string, pieces []Piece) *body {
	b := &body{s: s, starts: []int64{0}}
	for _, p := range pieces {
		b.keys = append(b.keys, dataKey(owner, id, p.Name))
		b.starts = append(b.starts, b.size()+p.Bytes)
	}
	return b
}

func (b *body) size() int64 { return b.starts[len(b.starts)-1] }

// piece returns the piece with a byte of the body, and the byte's offset in it.
func (b *body) piece(at int64) (n int, in int64) {
	n, found := slices.BinarySearch(b.starts, at)
	if !found {
		n--
	}
	for n+1 < len(b.starts) && b.starts[n+1] == at { // empty pieces
		n++
	}
	return n, at - b.starts[n]
}

func (b *body) ReadAt(p []byte, at int64) (n int, err error) {
	if at < 0 {
		return 0, errors.New("read a body: the place is negative")
	}
	for n < len(p) {
		if at >= b.size() {
			return n, io.EOF
		}
		if len(p)-n > blockBytes {
			k, in := b.piece(at)
			want := min(int64(len(p)-n), b.starts[k+1]-at)
			raw, _, err := b.s.objects.Get(b.keys[k], in, want)
			if err != nil {
				return n, err
			}
			n, at = n+copy(p[n:], raw), at+want
			continue
		}
		text, from, err := b.block(at)
		if err != nil {
			return n, err
		}
		m := copy(p[n:], text[at-from:])
		n, at = n+m, at+int64(m)
	}
	return n, nil
}

func (b *body) block(at int64) (text []byte, from int64, err error) {
	k, in := b.piece(at)
	in -= in % blockBytes
	from = b.starts[k] + in
	b.mu.Lock()
	for n, have := range b.blocks {
		if have.at == from {
			b.blocks = append(slices.Delete(b.blocks, n, n+1), have)
			b.mu.Unlock()
			return have.text, from, nil
		}
	}
	b.mu.Unlock()
	text, _, err = b.s.objects.Get(b.keys[k], in, min(blockBytes, b.starts[k+1]-from))
	if err != nil {
		return nil, 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blocks = append(b.blocks, block{from, text}); len(b.blocks) > mostBlocks {
		b.blocks = slices.Delete(b.blocks, 0, 1)
	}
	return text, from, nil
}

// mostResumed bounds how often a read resumes after its connection was cut.
const mostResumed = 5

func (b *body) Read(p []byte) (n int, err error) {
	for tries := 0; ; tries++ {
		if b.at >= b.size() {
			return 0, io.EOF
		}
		if len(p) == 0 {
			return 0, nil
		}
		k, in := b.piece(b.at)
		if b.in == nil {
			if b.in, err = b.s.objects.Open(b.keys[k], in); err != nil {
				return 0, err
			}
		}
		n, err = b.in.Read(p[:min(int64(len(p)), b.starts[k+1]-b.at)])
		b.at += int64(n)
		if err != nil || b.at == b.starts[k+1] {
			_ = b.in.Close()
			b.in = nil
		}
		switch {
		case n > 0:
			return n, nil
		case err != nil && tries == mostResumed:
			return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

func (b *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size()
	}
	if offset < 0 {
		return 0, errors.New("seek in a body: the place is negative")
	}
	if b.in != nil && offset != b.at {
		_ = b.in.Close()
		b.in = nil
	}
	b.at = offset
	return offset, nil
}

func (b *body) Close() error {
	if b.in != nil {
		_ = b.in.Close()
		b.in = nil
	}
	return nil
}

type small struct{ *bytes.Reader }

func (small) Close() error { return nil }

// readAhead is the largest body that is read when it is opened.
const readAhead = 1 << 20

// openPiece opens a body of one piece. Later reads of a small one can't fail.
func (s *Store) openPiece(owner, id string, p Piece) (Body, error) {
	if p.Bytes > readAhead {
		return s.openBody(owner, id, []Piece{p}), nil
	}
	raw, err := s.readBody(owner, id, p)
	if err != nil {
		return nil, err
	}
	return small{bytes.NewReader(raw)}, nil
}

func (s *Store) readBody(owner, id string, p Piece) ([]byte, error) {
	if p.Bytes == 0 {
		return nil, nil
	}
	raw, _, err := s.objects.Get(dataKey(owner, id, p.Name), 0, p.Bytes)
	return raw, err
}

func (s *Store) writeBody(owner, id string, p Piece, text []byte) error {
	if p.Bytes == 0 {
		return nil
	}
	return s.write(dataKey(owner, id, p.Name), text)
}
