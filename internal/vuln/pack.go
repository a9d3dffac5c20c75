package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is the part of an OSV entry that is indexed.
type entry struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
	} `json:"affected"`
}

type module struct {
	Path  string     `json:"path"`
	Vulns []affected `json:"vulns"`
}

type affected struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
}

// pack archives the entries below a folder for the standard library and the modules of go.sum.
func pack(from, date, to, sums string) error {
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return fmt.Errorf("-date: %w: say of which day the database is, such as 2026-01-31", err)
	}
	covered, err := modulesOf(sums)
	if err != nil {
		return err
	}
	files, err := entries(from)
	if err != nil {
		return fmt.Errorf("-from: %w", err)
	}
	contents, byModule := map[string][]byte{}, map[string]*module{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("pack: %w", err)
		}
		var e entry
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("pack %s: %w", file, err)
		}
		if !e.index(byModule, covered, day) {
			continue
		}
		if contents[path.Join("ID", e.ID+".json")], err = shorten(raw); err != nil {
			return fmt.Errorf("pack %s: %w", file, err)
		}
	}
	list := make([]*module, 0, len(byModule))
	for _, name := range slices.Sorted(maps.Keys(byModule)) {
		list = append(list, byModule[name])
	}
	for name, v := range map[string]any{"index/db.json": meta{day}, "index/modules.json": list, "covered.json": slices.Sorted(maps.Keys(covered))} {
		if contents[name], err = json.Marshal(v); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	archive, err := archive(contents)
	if err != nil {
		return err
	}
	return os.WriteFile(to, archive, 0o644)
}

// index adds the entry to its covered modules, and reports whether there are any.
func (e *entry) index(byModule map[string]*module, covered map[string]bool, day time.Time) (ours bool) {
	for _, a := range e.Affected {
		name := a.Package.Name
		if !covered[name] {
			continue
		}
		ours = true
		m := byModule[name]
		if m == nil {
			m = &module{Path: name}
			byModule[name] = m
		}
		if !slices.ContainsFunc(m.Vulns, func(v affected) bool { return v.ID == e.ID }) {
			m.Vulns = append(m.Vulns, affected{e.ID, day})
		}
	}
	return ours
}

// shorten removes the parts of an entry that govulncheck does not need.
func shorten(raw []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	for _, key := range []string{"details", "credits", "references"} {
		delete(all, key)
	}
	return json.Marshal(all)
}

// modulesOf returns the modules of a go.sum, and Go's own.
func modulesOf(sums string) (map[string]bool, error) {
	raw, err := os.ReadFile(sums)
	if err != nil {
		return nil, fmt.Errorf("pack: %w: run it at the root of the repository", err)
	}
	all := map[string]bool{"stdlib": true, "toolchain": true}
	for line := range strings.Lines(string(raw)) {
		if name, _, found := strings.Cut(line, " "); found {
			all[name] = true
		}
	}
	return all, nil
}

// archive returns a reproducible zip of the files.
func archive(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err == nil {
			_, err = w.Write(files[name])
		}
		if err != nil {
			return nil, fmt.Errorf("write the archive: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("write the archive: %w", err)
	}
	return out.Bytes(), nil
}
