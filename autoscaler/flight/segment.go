package flight

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// A segment is a gzip member whose comment is found behind damage. magic is its header.
const (
	format  = "rouse flight record "
	comment = format + "3"
	magic   = "\x1f\x8b\x08\x10\x00\x00\x00\x00\x00\xff" + comment + "\x00"
)

// Header describes a segment.
type Header struct {
	// Version and Arch describe the program that wrote it.
	Version string    `json:"version"`
	Arch    string    `json:"arch"`
	Began   time.Time `json:"began"` // in the writer's time zone
	// Run is the same for all segments of a process.
	Run string `json:"run"`
	// Follows: the previous segment of the run ended where it begins.
	Follows bool `json:"follows,omitempty"`
}

// Round is the input and the decisions of one time.
type Round struct {
	At time.Time
	// Step is by how much the clock was set.
	Step time.Duration
	In   []Item
}

// Item is an input or a decision.
type Item struct {
	Kind  string
	Value []byte // JSON
}

const (
	beginLine = `{"begin":`
	stateLine = `{"state":`
	roundLine = `{"at":`
	itemLine  = `{"kind":"`
	itemValue = `","value":`
	sumLine   = `{"sum":`
	endLine   = `{"end":`
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ending says why a segment ended early.
type ending struct {
	Why string `json:"why,omitempty"`
}

type segmentWriter struct {
	w       io.Writer
	zip     *gzip.Writer
	zipped  bytes.Buffer
	sum     uint32
	written int64
}

func newSegmentWriter(w io.Writer, h Header, state any) (*segmentWriter, error) {
	s := &segmentWriter{w: w}
	s.zip = gzip.NewWriter(&s.zipped)
	s.zip.Comment = comment
	var lines []byte
	for _, l := range []struct {
		begin string
		value any
	}{{beginLine, h}, {stateLine, state}} {
		value, err := json.Marshal(l.value)
		if err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		lines = append(append(append(lines, l.begin...), value...), "}\n"...)
	}
	return s, s.write(lines)
}

func (s *segmentWriter) write(lines []byte) error {
	s.sum = crc32.Update(s.sum, castagnoli, lines)
	_, _ = s.zip.Write(lines) // to memory, like Flush and Close: it never fails
	fmt.Fprintf(s.zip, sumLine+"%d}\n", s.sum)
	_ = s.zip.Flush()
	return s.copy()
}

func (s *segmentWriter) copy() error {
	n, err := s.w.Write(s.zipped.Bytes())
	s.zipped.Reset()
	s.written += int64(n)
	return err
}

func (s *segmentWriter) end(why string) error {
	last, _ := json.Marshal(ending{why}) // a string always encodes
	if err := s.write(append(append([]byte(endLine), last...), "}\n"...)); err != nil {
		return err
	}
	_ = s.zip.Close()
	return s.copy()
}
