package cli

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/internal/disk"
)

// Bounds of the lines kept, of a line, and of the file.
const (
	mostTyped    = 1000
	longestTyped = 4096
	mostHistory  = 2 * mostTyped * longestTyped
)

// typed is a file of lines, to which several programs may append: a [term.History]. It is not safe for concurrent use.
type typed struct {
	path  string // empty: no file
	lines []string
	added []string // since it was read
}

func newTyped(path string) *typed {
	t := &typed{path: path}
	if path != "" {
		t.lines = readTyped(path)
	}
	return t
}

func readTyped(path string) (lines []string) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > mostHistory {
		return nil
	}
	all := bufio.NewScanner(f)
	for all.Scan() {
		if line := all.Text(); keeps(line) {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-mostTyped):]
}

// keeps accepts what fits on a line, and can safely be printed on a terminal.
func keeps(line string) bool {
	return strings.TrimSpace(line) != "" && len(line) <= longestTyped && !strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 })
}

func (t *typed) Add(line string) {
	if !keeps(line) || len(t.lines) > 0 && t.lines[len(t.lines)-1] == line {
		return
	}
	t.lines = append(t.lines[max(0, len(t.lines)-mostTyped+1):], line)
	t.added = append(t.added[max(0, len(t.added)-mostTyped+1):], line)
}

func (t *typed) Len() int { return len(t.lines) }

// At counts from the last line.
func (t *typed) At(i int) string { return t.lines[len(t.lines)-1-i] }

func (t *typed) close() error {
	if t.path == "" || len(t.added) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return err
	}
	if info, err := os.Lstat(t.path); err == nil && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "write", Path: t.path, Err: errors.New("it is no file")}
	}
	all := slices.Concat(readTyped(t.path), t.added) // others may have added theirs
	all = all[max(0, len(all)-mostTyped):]
	return disk.WriteFile(t.path, []byte(strings.Join(all, "\n")+"\n"), 0o600)
}
