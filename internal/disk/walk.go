package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Walk is [filepath.WalkDir] that follows links: info describes the target. A folder is seen once, and linked folders come
// last. If an entry can't be read, see gets the error and no info.
func Walk(root string, see func(path string, info fs.FileInfo, err error) error) error {
	seen := map[string]bool{}
	folders := []string{root}
	var visit func(path string) error
	visit = func(path string) error {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			return see(path, info, err)
		}
		own, err := filepath.EvalSymlinks(path)
		if err != nil {
			return see(path, nil, err)
		}
		if seen[own] {
			return nil
		}
		seen[own] = true
		if err := see(path, info, nil); err != nil {
			return ignore(err, fs.SkipDir)
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return ignore(see(path, nil, err), fs.SkipDir)
		}
		for _, e := range entries {
			below := filepath.Join(path, e.Name())
			if info, err := os.Stat(below); e.Type()&fs.ModeSymlink != 0 && err == nil && info.IsDir() {
				folders = append(folders, below)
			} else if err := visit(below); err != nil {
				return ignore(err, fs.SkipDir)
			}
		}
		return nil
	}
	for len(folders) > 0 {
		next := folders[0]
		folders = folders[1:]
		if err := visit(next); err != nil {
			return ignore(ignore(err, fs.SkipAll), fs.SkipDir)
		}
	}
	return nil
}

func ignore(err, understood error) error {
	if errors.Is(err, understood) {
		return nil
	}
	return err
}
