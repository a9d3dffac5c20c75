package flight

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// mostFile bounds a file that is read.
const mostFile = 1 << 30

// Segment is the intact part of one segment.
type Segment struct {
	Header
	// Why says why it ended early; empty: it did not.
	Why string
	// Damage says which part of the file can't be read; empty: none.
	Damage string
	// Open says that it has no ending: it is being written, or its program was killed.
	Open bool
	// From is its file.
	From string

	chunks [][]byte
}

// Open reads the segments of a file, or of all files in a folder, in their order. It fails if nothing can be read; otherwise
// [Segment].Damage says what is missing.
func Open(path string) ([]*Segment, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	files := []File{{Path: path, Size: info.Size()}}
	if info.IsDir() {
		if files, err = Files(path); err == nil && len(files) == 0 {
			err = fmt.Errorf("there is no file *%s", suffix)
		}
		if err != nil {
			return nil, fmt.Errorf("open the record %s: %w", path, err)
		}
	}
	var all []*Segment
	for _, f := range files {
		if f.Size > mostFile {
			return nil, fmt.Errorf("%s has %d bytes: want at most %d", f.Path, f.Size, mostFile)
		}
		data, err := os.ReadFile(f.Path)
		if errors.Is(err, os.ErrNotExist) && info.IsDir() {
			continue // removed to make room
		}
		if err != nil {
			return nil, fmt.Errorf("open the record: %w", err)
		}
		segments, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		for _, s := range segments {
			s.From = f.Path
		}
		all = append(all, segments...)
	}
	return all, nil
}

// Parse reads the segments in data.
func Parse(data []byte) ([]*Segment, error) {
	version, _, _ := strings.Cut(magic, "2")
	switch {
	case len(data) == 0:
		return nil, errors.New("it is empty")
	case !bytes.HasPrefix(data, []byte(version)):
		return nil, errors.New("it is no flight record")
	case !bytes.HasPrefix(data, []byte(magic)):
		line, _, _ := bytes.Cut(data[:min(len(data), 2*len(magic))], []byte("\n"))
		return nil, fmt.Errorf("it is a %q, which another version of Rouse has written: this one reads %q", line, strings.TrimSpace(magic))
	}
	var all []*Segment
	for at := 0; at < len(data); {
		s, size := parseSegment(data[at:])
		if s.Damage != "" {
			s.Damage = fmt.Sprintf("from byte %d of %d on: %s", at+size, len(data), s.Damage)
			skip := min(max(size, len(magic)), len(data)-at)
			if next := bytes.Index(data[at+skip:], []byte(magic)); next >= 0 {
				size = skip + next
			} else {
				size = len(data) - at
			}
		}
		at += size
		if s.Shape == "" && len(all) == 0 && at >= len(data) {
			return nil, errors.New(s.Damage)
		}
		all = append(all, s)
	}
	return all, nil
}

// parseSegment reads the segment at the beginning of data, and returns the size of its intact part.
func parseSegment(data []byte) (s *Segment, size int) {
	s = &Segment{}
	if !bytes.HasPrefix(data, []byte(magic)) {
		s.Damage = "no segment begins there"
		return s, 0
	}
	size = len(magic)
	for number := uint32(0); ; number++ {
		if s.Open = number > 1 && (len(data) == size || bytes.HasPrefix(data[size:], []byte(magic))); s.Open {
			return s, size
		}
		kind, content, err := chunkAt(data[size:], number)
		if err == nil {
			err = s.take(kind, number, content)
		}
		if err != nil {
			s.Damage = err.Error()
			return s, size
		}
		size += chunkHead + len(content)
		if kind == kindEnding {
			return s, size
		}
	}
}

// chunkAt reads the chunk at the beginning of data.
func chunkAt(data []byte, number uint32) (kind uint32, content []byte, err error) {
	if len(data) < chunkHead {
		return 0, nil, errors.New("the file ends in the middle of a segment: it was cut, or is being written")
	}
	head := binary.LittleEndian.Uint32(data)
	kind, n := head>>28, int(head&mostChunk)
	if n > len(data)-chunkHead {
		return 0, nil, errors.New("the file ends in the middle of a chunk: it was cut, or is damaged there")
	}
	content = data[chunkHead : chunkHead+n]
	if checksum(kind, number, content) != binary.LittleEndian.Uint32(data[4:]) {
		return 0, nil, errors.New("the checksum is wrong: the file was damaged or changed there")
	}
	return kind, content, nil
}

func (s *Segment) take(kind, number uint32, content []byte) error {
	switch {
	case (kind == kindHeader) != (number == 0):
		return errors.New("the chunks are not in their order")
	case kind == kindHeader:
		if err := json.Unmarshal(content, &s.Header); err != nil || s.Shape == "" {
			s.Header = Header{}
			return errors.New("the header can't be read")
		}
	case kind == kindData:
		s.chunks = append(s.chunks, content)
	case kind == kindEnding:
		var e ending
		if err := json.Unmarshal(content, &e); err != nil {
			return errors.New("the ending can't be read")
		}
		s.Why = e.Why
	default:
		return errors.New("there is a chunk of an unknown kind")
	}
	return nil
}

// Size returns the compressed size of the intact part.
func (s *Segment) Size() (n int) {
	for _, c := range s.chunks {
		n += len(c)
	}
	return n
}

// Content returns the intact part, uncompressed.
func (s *Segment) Content() ([]byte, error) {
	zip, err := s.decompress()
	if err != nil {
		return nil, err
	}
	defer zip.Close()
	content, err := io.ReadAll(zip)
	if errors.Is(err, io.ErrUnexpectedEOF) { // the stream has no end of its own
		err = nil
	}
	return content, err
}

// SegmentOf makes a segment of a header and an uncompressed content.
func SegmentOf(h Header, content []byte) (*Segment, error) {
	var b bytes.Buffer
	w, err := newSegmentWriter(&b, h)
	if err == nil {
		err = w.data(content)
	}
	if err == nil {
		err = w.end("")
	}
	if err != nil {
		return nil, err
	}
	s, _ := parseSegment(b.Bytes())
	return s, nil
}

func (s *Segment) decompress() (*zstd.Decoder, error) {
	chunks := make([]io.Reader, len(s.chunks))
	for k, c := range s.chunks {
		chunks[k] = bytes.NewReader(c)
	}
	zip, err := zstd.NewReader(io.MultiReader(chunks...), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return zip, nil
}

// Reader reads one segment. Its first error stays.
type Reader struct {
	in     *bufio.Reader // a gob.Decoder takes no more of it than a value has
	zip    *zstd.Decoder
	rounds *gob.Decoder
	err    error
}

// Reader begins to read s. shape is [Shape] of what this program records. Close it.
func (s *Segment) Reader(shape, version string) (*Reader, error) {
	if s.Shape == "" {
		return nil, fmt.Errorf("nothing of it can be read: %s", s.Damage)
	}
	if s.Shape != shape {
		return nil, fmt.Errorf("it was recorded by Rouse %s, whose state has another shape than that of this Rouse %s: replay it with that version", s.Version, version)
	}
	zip, err := s.decompress()
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(zip)
	return &Reader{in: in, zip: zip, rounds: gob.NewDecoder(in)}, nil
}

// Close frees the resources of r.
func (r *Reader) Close() { r.zip.Close() }

// State reads the state that the segment begins with into v, a pointer to a struct. It comes first.
func (r *Reader) State(v any) error {
	if err := gob.NewDecoder(r.in).Decode(v); err != nil {
		return fmt.Errorf("the state: %w", err)
	}
	return nil
}

// Round reads the time of the next round, and the amount by which the clock was set. It returns [io.EOF] after the last round.
func (r *Reader) Round() (now time.Time, step time.Duration, err error) {
	if _, err := r.in.Peek(1); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the stream has no end of its own
		return now, 0, io.EOF
	}
	var h head
	r.Take(&h)
	return h.Now, h.Step, r.err
}

// Next returns the kind of the next value of the round, or false at the end of the round or after an error ([Reader.Err]).
func (r *Reader) Next() (kind uint8, found bool) {
	r.Take(&kind)
	return kind, kind > 0 && r.err == nil
}

// Take reads the value whose kind Next returned into v, a pointer to a zero value of its type.
func (r *Reader) Take(v any) {
	if r.err == nil {
		r.err = r.rounds.Decode(v)
	}
}

// Err returns the first error.
func (r *Reader) Err() error { return r.err }
