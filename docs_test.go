package rouse_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// link matches a link or an image of a page, and notes the target.
var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// page is a document: its links, and the headings that others may point at.
type page struct {
	links   []string // as "LINE target"
	anchors map[string]bool
}

// readPage reads a document. What is in blocks of code counts for nothing.
func readPage(t *testing.T, path string) page {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := page{anchors: map[string]bool{}}
	fence := ""
	for n, line := range strings.Split(string(raw), "\n") {
		trimmed := strings.TrimLeft(line, " ")
		if fence != "" {
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			continue
		}
		if strings.HasPrefix(trimmed, "```") {
			fence = "```"
			continue
		}
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			p.anchors[p.anchor(title)] = true
		}
		if strings.HasPrefix(line, "    ") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			p.links = append(p.links, fmt.Sprintf("%d %s", n+1, m[1]))
		}
	}
	return p
}

// anchor returns the anchor that GitHub gives a heading.
func (p page) anchor(title string) string {
	title = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(strings.TrimSpace(title), "$1")
	title = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(title), "")
	base := strings.ReplaceAll(title, " ", "-")
	name := base
	for n := 1; p.anchors[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}

// TestLinks follows every link of the documents to a file of this repository, and to its heading.
func TestLinks(t *testing.T) {
	pages := map[string]page{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "dist"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			pages[path] = readPage(t, path)
		}
		return nil
	})
	if err != nil || len(pages) < 20 {
		t.Fatalf("found %d documents: %v", len(pages), err)
	}
	for path, p := range pages {
		for _, l := range p.links {
			line, target, _ := strings.Cut(l, " ")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s:%s links to %s, which is not there", path, line, target)
				continue
			}
			if other, is := pages[to]; anchor != "" && is && !other.anchors[anchor] {
				t.Errorf("%s:%s links to %s, and %s has no such heading", path, line, target, to)
			}
		}
	}
}

// TestReadme: the first page is short, and fits into a terminal.
func TestReadme(t *testing.T) {
	raw, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	if len(lines) > 150 {
		t.Errorf("README.md has %d lines, want at most 150", len(lines))
	}
	for n, line := range lines {
		if columns := utf8.RuneCountInString(line); columns > 120 {
			t.Errorf("README.md:%d: %d columns, want at most 120", n+1, columns)
		}
	}
}

// TestReadmeFigures: what the first page says was measured is in docs/measured.md, by the same figures.
func TestReadmeFigures(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	measured, err := os.ReadFile("docs/measured.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## What was measured\n")
	section, _, _ = strings.Cut(section, "\n## ")
	figures := regexp.MustCompile(`[\d.]+ (?:ms|µs|h|requests/s) \|`).FindAllString(section, -1)
	for _, f := range figures {
		if !strings.Contains(string(measured), "| "+f) {
			t.Errorf("README.md says %s which docs/measured.md does not", f)
		}
	}
	if len(figures) == 0 {
		t.Error("README.md has no figure")
	}
}
