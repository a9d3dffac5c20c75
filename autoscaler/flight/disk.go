package flight

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// suffix ends the names of segments, which sort by time of writing.
const suffix = ".flight"

// disk writes segments and bounds their total size.
type disk struct {
	cfg   Config
	file  *os.File // nil: none is open
	w     *segmentWriter
	begun int

	checked int64 // the segment's size when the sum was last computed
}

func (d *disk) step(s step) (err error) {
	switch {
	case s.begin != nil:
		d.close()
		if s.finish != nil {
			s.finish()
		}
		err = d.begin(*s.begin, s.state)
	case d.file == nil: // it could not be written further
		return nil
	case s.end:
		err = d.w.end(s.why)
		err = errors.Join(err, d.file.Close())
		d.file, d.w = nil, nil
	default:
		err = d.w.write(s.rounds)
	}
	if err != nil {
		d.close()
		return fmt.Errorf("write the record: %w", err)
	}
	if d.size() != 0 && d.size()-d.checked < d.cfg.MostBytes/100 {
		return nil
	}
	d.checked = d.size()
	return d.makeRoom()
}

func (d *disk) size() int64 {
	if d.w == nil {
		return 0
	}
	return d.w.written
}

func (d *disk) close() {
	if d.file != nil {
		_ = d.file.Close() // the data already written stays readable
		d.file, d.w = nil, nil
	}
}

func (d *disk) begin(h Header, state any) error {
	if err := os.MkdirAll(d.cfg.Folder, 0o700); err != nil {
		return err
	}
	d.begun++
	d.checked = -d.cfg.MostBytes
	name := fmt.Sprintf("%s-%s-%04d%s", h.Began.UTC().Format("20060102T150405.000000"), h.Run, d.begun, suffix) // two may begin at the same time
	file, err := os.OpenFile(filepath.Join(d.cfg.Folder, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	d.file = file
	d.w, err = newSegmentWriter(file, h, state)
	return err
}

// makeRoom removes the oldest segments, but not the open one.
func (d *disk) makeRoom() error {
	files, err := Files(d.cfg.Folder)
	if err != nil {
		return err
	}
	sum := int64(0)
	for _, f := range files {
		sum += f.Size
	}
	for _, f := range files {
		if sum <= d.cfg.MostBytes || d.file != nil && f.Path == d.file.Name() {
			break
		}
		if err := os.Remove(f.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		sum -= f.Size
	}
	return nil
}

// File is the file of a segment.
type File struct {
	Path string
	Size int64
}

// Files lists the segments in a folder, if it exists, the oldest first.
func Files(folder string) ([]File, error) {
	list, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var files []File
	for _, e := range list {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		if info, err := e.Info(); err == nil { // else it was just removed
			files = append(files, File{filepath.Join(folder, e.Name()), info.Size()})
		}
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return files, nil
}

// Copy writes all segments to w, the oldest first, with the part of the open one that is on disk.
// It may be called from any goroutine.
func (r *Recorder) Copy(w io.Writer) error {
	files, err := Files(r.cfg.Folder)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := copyFile(w, f); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(w io.Writer, f File) error {
	file, err := os.Open(f.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed to make room
	}
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, io.LimitReader(file, f.Size))
	return err
}
