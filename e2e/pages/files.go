package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// File is a page that lies in a file.
type File struct {
	Page

	// Name is below the root: docs.tutorials.laptop.
	Path, Name string
}

// Files returns the README and the pages of docs that have commands to run in a cluster, or elsewhere.
func Files(root string, cluster bool) (all []File, err error) {
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/tutorials/*.md", "docs/howto/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			page, err := Parse(string(raw))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			name, err := filepath.Rel(root, strings.TrimSuffix(path, ".md"))
			if err != nil {
				return nil, err
			}
			if page.Runs(cluster) {
				all = append(all, File{page, path, strings.ReplaceAll(filepath.ToSlash(name), "/", ".")})
			}
		}
	}
	return all, nil
}

// Check is [Page.Follow]. The shell's update writes what was printed to the file.
func (f File) Check(s *Shell, cluster bool) error {
	text, err := f.Follow(s, cluster)
	if err != nil || !s.cfg.Update {
		return err
	}
	return os.WriteFile(f.Path, []byte(text), 0o644)
}
