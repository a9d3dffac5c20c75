package flight

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

// magic begins each segment and has the format's version.
const magic = "rouse flight record 2\n"

// Header describes a segment.
type Header struct {
	// Version and Arch describe the program that wrote it.
	Version string `json:"version"`
	Arch    string `json:"arch"`
	// Shape is the [Shape] of its content.
	Shape string `json:"shape"`
	// Began is the time when it begins.
	Began time.Time `json:"began"`
	// Zone is the name of its time zone, Offset the seconds east of UTC.
	Zone   string `json:"zone"`
	Offset int    `json:"offset"`
	// Run is the same for all segments of a process.
	Run string `json:"run"`
	// Follows says that the previous segment of the same run ended where it begins.
	Follows bool `json:"follows,omitempty"`
}

// Location returns the time zone of the segment.
func (h Header) Location() *time.Location { return time.FixedZone(h.Zone, h.Offset) }

// ending is the last chunk of a segment.
type ending struct {
	// Why says why it ended early; empty: it was full.
	Why string `json:"why,omitempty"`
}

// A chunk is its length with its kind in the upper bits, a checksum of kind, number and content, and the content. The first is the header, the last
// the ending, both in JSON; those between form one zstd stream, flushed at the end of each chunk.
const (
	kindHeader uint32 = iota + 1
	kindData
	kindEnding

	chunkHead = 8
	mostChunk = 1<<28 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(kind, number uint32, content []byte) uint32 {
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:], kind)
	binary.LittleEndian.PutUint32(head[4:], number)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, content)
}

// segmentWriter writes one segment.
type segmentWriter struct {
	w       io.Writer
	zip     *zstd.Encoder
	zipped  bytes.Buffer
	number  uint32
	written int64
}

func newSegmentWriter(w io.Writer, h Header) (*segmentWriter, error) {
	s := &segmentWriter{w: w}
	var err error
	if s.zip, err = zstd.NewWriter(&s.zipped, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true)); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if _, err := io.WriteString(w, magic); err != nil {
		return nil, err
	}
	s.written = int64(len(magic))
	return s, s.chunk(kindHeader, head)
}

// data writes a chunk of records.
func (s *segmentWriter) data(records []byte) error {
	if _, err := s.zip.Write(records); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := s.zip.Flush(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	err := s.chunk(kindData, s.zipped.Bytes())
	s.zipped.Reset()
	return err
}

// end writes the ending.
func (s *segmentWriter) end(why string) error {
	last, err := json.Marshal(ending{Why: why})
	if err != nil {
		return fmt.Errorf("ending: %w", err)
	}
	return s.chunk(kindEnding, last)
}

func (s *segmentWriter) chunk(kind uint32, content []byte) error {
	out := make([]byte, chunkHead, chunkHead+len(content))
	binary.LittleEndian.PutUint32(out, kind<<28|uint32(len(content)))
	binary.LittleEndian.PutUint32(out[4:], checksum(kind, s.number, content))
	s.number++
	n, err := s.w.Write(append(out, content...))
	s.written += int64(n)
	return err
}
