package flight

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Bounds of what is read.
const (
	mostFile   = 1 << 30
	mostRecord = 128 << 20
)

// Segment is one segment of a record, as far as it is whole.
type Segment struct {
	Header
	// Why says why it ended before its time; empty: it did not.
	Why string
	// Damage says what of the file can't be read; empty: nothing.
	Damage string
	// Open says that it has no ending, and is whole: it is being written, or its program was killed.
	Open bool
	// From is the file that it is of.
	From string

	chunks [][]byte
}

// Open reads the segments of a file, or of all files in a folder, in their order. Where nothing at all can be read, that is an error; where a part can,
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
			continue // its time was up
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
	version, _, _ := strings.Cut(magic, "1")
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

// parseSegment reads the segment that data begins with, and how much of data is whole.
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

// chunkAt reads the chunk that data begins with.
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

// Size is how many bytes of s there are, compressed, without what is damaged.
func (s *Segment) Size() (n int) {
	for _, c := range s.chunks {
		n += len(c)
	}
	return n
}

// Content is all that s has, uncompressed, as far as it is whole.
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

// SegmentOf is a segment with a content.
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

// Reader reads the records of one segment. Its first error stays.
type Reader struct {
	in     io.Reader
	zip    *zstd.Decoder
	rounds *decoder
	zone   *time.Location
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
	d := newDecoder()
	d.ref = s.Began.In(s.Location())
	return &Reader{in: bufio.NewReader(zip), zip: zip, rounds: d, zone: s.Location()}, nil
}

// Close frees what r has.
func (r *Reader) Close() { r.zip.Close() }

// State reads the state that the segment begins with into v, a pointer to a struct. It comes first.
func (r *Reader) State(v any) error {
	content, err := r.record(recordState)
	if err != nil {
		return fmt.Errorf("the state: %w", err)
	}
	d := newDecoder()
	d.buf, d.ref, d.memory = content, r.rounds.ref, mostMemory
	d.take(Key{}, v)
	if d.err == nil && len(d.buf) > 0 {
		d.fail(errors.New("it goes on behind its end"))
	}
	if d.err != nil {
		return fmt.Errorf("the state: %w", d.err)
	}
	return nil
}

// Round reads the next round's time, and by how much the clock was set. [io.EOF] says that there is none.
func (r *Reader) Round() (now time.Time, step time.Duration, err error) {
	content, err := r.record(recordRound)
	if err != nil {
		return now, 0, err
	}
	d := r.rounds
	d.buf, d.memory = content, mostMemory
	now = d.ref.Add(time.Duration(d.varint()) * time.Microsecond)
	step = time.Duration(d.varint()) * time.Microsecond
	d.ref = now
	return now, step, d.err
}

// Next is the key of the next value of the round; false: there is none, or it can't be read, which [Reader.Err] says.
func (r *Reader) Next() (key Key, found bool) {
	d := r.rounds
	if len(d.buf) == 0 || d.err != nil {
		return key, false
	}
	kind := d.uvarint()
	key = Key{uint8(kind), d.string(), d.string()}
	if kind == 0 || kind > 255 {
		d.fail(errors.New("there is a value of an unknown kind"))
	}
	return key, d.err == nil
}

// Take reads the value whose key came last into v, a pointer to a struct.
func (r *Reader) Take(key Key, v any) { r.rounds.take(key, v) }

// Err is what was wrong with a value; nil: nothing.
func (r *Reader) Err() error { return r.rounds.err }

// record reads the next one, which is to be of a kind.
func (r *Reader) record(want uint64) ([]byte, error) {
	kind, err := r.uvarint()
	if err != nil {
		return nil, err
	}
	n, err := r.uvarint()
	switch {
	case err != nil || n > mostRecord:
		return nil, errors.New("it ends in the middle of a record")
	case kind != want:
		return nil, errors.New("there is a record of an unknown kind")
	}
	var content bytes.Buffer
	if _, err := io.CopyN(&content, r.in, int64(n)); err != nil {
		return nil, errors.New("it ends in the middle of a record")
	}
	return content.Bytes(), nil
}

// uvarint reads a number. [io.EOF] says that the records are at their end: a segment's stream has none of its own.
func (r *Reader) uvarint() (n uint64, err error) {
	var one [1]byte
	for shift := 0; shift < 64; shift += 7 {
		if _, err := io.ReadFull(r.in, one[:]); err != nil {
			if shift == 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				return 0, io.EOF
			}
			return 0, fmt.Errorf("decompress: %w", err)
		}
		n |= uint64(one[0]&0x7f) << shift
		if one[0] < 0x80 {
			return n, nil
		}
	}
	return 0, errors.New("a number is too long")
}
