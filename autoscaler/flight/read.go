package flight

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	mostFile = 1 << 30 // bounds a file that is read
	mostLine = 1 << 28 // bounds a line
)

// Segment is the intact part of one segment.
type Segment struct {
	Header
	// Why says why it ended early.
	Why string
	// Damage says which part of the file can't be read.
	Damage string
	// Open says that it has no ending: it is being written, or its program was killed.
	Open bool
	From string
	// Last is the time of the last round.
	Rounds int
	Last   time.Time

	data  []byte // compressed
	ended bool
}

// Open reads the segments of a file, or of all files in a folder, in their order. It fails if nothing can be read;
// otherwise [Segment].Damage says what is missing.
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
	var failed error
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
			failed = errors.Join(failed, fmt.Errorf("%s: %w", f.Path, err))
			segments = []*Segment{{Damage: err.Error()}}
		}
		for _, s := range segments {
			s.From = f.Path
		}
		all = append(all, segments...)
	}
	if failed != nil && !slices.ContainsFunc(all, func(s *Segment) bool { return s.Run != "" }) {
		return nil, failed
	}
	return all, nil
}

// Parse reads the segments in data.
func Parse(data []byte) ([]*Segment, error) {
	head := data[:min(len(data), 2*len(magic))]
	switch k := bytes.Index(head, []byte(format)); {
	case len(data) == 0:
		return nil, errors.New("it is empty")
	case k < 0:
		return nil, errors.New("it is no flight record")
	case !bytes.HasPrefix(head[k:], []byte(comment)):
		other, _, _ := bytes.Cut(head[k:], []byte("\n"))
		other, _, _ = bytes.Cut(other, []byte("\x00"))
		return nil, fmt.Errorf("it is a %q, which another version of Rouse has written: this one reads %q", other, comment)
	}
	var all []*Segment
	for from, next := 0, 0; from < len(data); from = next {
		next = len(data)
		if k := bytes.Index(data[from+1:], []byte(magic)); k >= 0 {
			next = from + 1 + k
		}
		s := &Segment{data: data[from:next]}
		intact, err := s.verify()
		if err != nil {
			s.Damage = fmt.Sprintf("from byte %d of %d on: %s", from+intact, len(data), err)
		}
		if s.Run == "" && len(all) == 0 && next == len(data) {
			return nil, errors.New(s.Damage)
		}
		all = append(all, s)
	}
	return all, nil
}

// verify returns the size of the intact part of s.data, up to the last sum that is right. The error says what is behind
// it.
func (s *Segment) verify() (intact int, err error) {
	lines, in, err := s.lines()
	if err != nil || !bytes.HasPrefix(s.data, []byte(magic)) {
		return 0, errors.New("no segment begins there")
	}
	sum, now, sound := uint32(0), *s, true
	for n := 0; sound && lines.Scan(); {
		line := lines.Bytes()
		if text, found := bytes.CutPrefix(line, []byte(sumLine)); found {
			if string(text) != fmt.Sprintf("%d}", sum) {
				return intact, errDamaged
			}
			*s, intact = now, len(s.data)-in.Len()
			continue
		}
		sum = crc32.Update(crc32.Update(sum, castagnoli, line), castagnoli, []byte("\n"))
		sound = now.add(line, n)
		n++
	}
	if lines.Scan() { // what is not sound is no line that was cut
		return intact, errDamaged
	}
	switch err := lines.Err(); {
	case err == nil && s.ended && in.Len() == 0:
		return intact, nil
	case err == nil && s.ended:
		return len(s.data) - in.Len(), errors.New("no segment begins there")
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return intact, errDamaged
	case !sound || intact == 0 || intact < len(s.data):
		return intact, errors.New("the file ends in the middle of a segment: it was cut, or is being written")
	}
	s.Open = true
	return intact, nil
}

var errDamaged = errors.New("the checksum is wrong: the file was damaged or changed there")

// lines also returns the reader below.
func (s *Segment) lines() (*bufio.Scanner, *bytes.Reader, error) {
	in := bytes.NewReader(s.data)
	zip, err := gzip.NewReader(in)
	if err != nil {
		return nil, nil, err
	}
	zip.Multistream(false)
	lines := bufio.NewScanner(zip)
	lines.Buffer(nil, mostLine)
	return lines, in, nil
}

// add reports whether line n can be one.
func (s *Segment) add(line []byte, n int) bool {
	text := string(line[:min(len(line), 64)])
	var l struct {
		Begin Header
		End   ending
	}
	switch {
	case s.ended || (n == 0) != strings.HasPrefix(text, beginLine) || (n == 1) != strings.HasPrefix(text, stateLine):
		return false
	case n == 0:
		if err := json.Unmarshal(line, &l); err != nil || l.Begin.Run == "" {
			return false
		}
		s.Header, s.Last = l.Begin, l.Begin.Began
	case strings.HasPrefix(text, roundLine):
		at := text[len(roundLine):]
		at = at[:max(0, strings.IndexAny(at, ",}"))]
		if err := s.Last.UnmarshalJSON([]byte(at)); err != nil {
			return false
		}
		s.Rounds++
	case strings.HasPrefix(text, endLine):
		if err := json.Unmarshal(line, &l); err != nil {
			return false
		}
		s.Why, s.ended = l.End.Why, true
	case n != 1 && !strings.HasPrefix(text, itemLine):
		return false
	}
	return true
}

// Reader reads one segment.
type Reader struct {
	lines *bufio.Scanner
	next  []byte // a line that was looked at
	left  int    // rounds
}

// Reader reads the state that s begins with into state, a pointer to a struct.
func (s *Segment) Reader(state any) (*Reader, error) {
	if s.Run == "" {
		return nil, fmt.Errorf("nothing of it can be read: %s", s.Damage)
	}
	lines, _, err := s.lines()
	if err != nil {
		return nil, err
	}
	lines.Scan() // the header
	lines.Scan()
	line, _ := bytes.CutPrefix(lines.Bytes(), []byte(stateLine))
	line, _ = bytes.CutSuffix(line, []byte("}"))
	if err := json.Unmarshal(line, state); err != nil {
		return nil, fmt.Errorf("the state: %w", err)
	}
	return &Reader{lines: lines, left: s.Rounds}, nil
}

// Round returns [io.EOF] after the last round.
func (r *Reader) Round() (round Round, err error) {
	if r.left == 0 {
		return round, io.EOF
	}
	r.left--
	for begun := false; ; {
		if len(r.next) == 0 {
			if !r.lines.Scan() {
				return round, errors.Join(io.ErrUnexpectedEOF, r.lines.Err())
			}
			r.next = r.lines.Bytes()
		}
		item, isItem := bytes.CutPrefix(r.next, []byte(itemLine))
		switch {
		case isItem:
			kind, value, _ := bytes.Cut(item, []byte(itemValue))
			round.In = append(round.In, Item{string(kind), bytes.Clone(bytes.TrimSuffix(value, []byte("}")))})
		case begun: // the next round, or a sum
			return round, nil
		case bytes.HasPrefix(r.next, []byte(roundLine)):
			begun = true
			if err := json.Unmarshal(r.next, &round); err != nil {
				return round, err
			}
		}
		r.next = nil
	}
}
