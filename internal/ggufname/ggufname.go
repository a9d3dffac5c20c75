// Package ggufname interprets the names of GGUF files: which files are models, and which files form one model. It
// reads no file's content.
package ggufname

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// part matches a file of a model split by llama-gguf-split.
var part = lazyregexp.New(`^(.+)-(\d{5})-of-(\d{5})(\.(?i:gguf))$`)

// other matches image projectors and importance matrices.
var other = lazyregexp.New(`(?i)(^|[-._])(mmproj|imatrix)([-._]|$)`)

// split splits the name of a part of a model; count is 0 if it is none.
func split(name string) (stem, end string, count int) {
	m := part().FindStringSubmatch(name)
	if m == nil {
		return name, "", 0
	}
	no, _ := strconv.Atoi(m[2]) // five digits
	if count, _ = strconv.Atoi(m[3]); no < 1 || no > count {
		return name, "", 0
	}
	return m[1] + "-", "-of-" + m[3] + m[4], count
}

// Parts returns the names of all files of the model that name belongs to, in order: only name, unless it has the form
// NAME-00002-of-00003.gguf.
func Parts(name string) []string {
	stem, end, count := split(name)
	if count == 0 {
		return []string{name}
	}
	parts := make([]string, count)
	for i := range parts {
		parts[i] = fmt.Sprintf("%s%05d%s", stem, i+1, end)
	}
	return parts
}

// Base returns the name of a model's file without folder, extension and part number.
func Base(name string) string {
	name = path.Base(name)
	if stem, _, count := split(name); count > 0 {
		return strings.TrimSuffix(stem, "-")
	}
	if strings.EqualFold(path.Ext(name), ".gguf") {
		name = name[:len(name)-len(".gguf")]
	}
	return name
}

// Models returns the first file of each model among names, sorted, even if only another part is among names; see
// [Missing].
func Models(names []string) []string {
	var models []string
	for _, name := range names {
		if !strings.EqualFold(path.Ext(name), ".gguf") || other().MatchString(Base(name)) {
			continue
		}
		if stem, end, count := split(name); count > 0 {
			name = stem + "00001" + end
		}
		models = append(models, name)
	}
	slices.Sort(models)
	return slices.Compact(models)
}

// Missing returns an error if a part of the model is not among names.
func Missing(model string, names []string) error {
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	for _, p := range Parts(model) {
		if !there[p] {
			return fmt.Errorf("the model %s is in several files, of which %s is missing", Base(model), path.Base(p))
		}
	}
	return nil
}

// Size returns the bytes of all files of the model at path.
func Size(path string) (size int64, err error) {
	for _, p := range Parts(path) {
		info, err := os.Stat(p)
		switch {
		case err != nil:
			return 0, err
		case !info.Mode().IsRegular():
			return 0, errors.New(p + " is not a file: name one in it, if it is a folder")
		}
		size += info.Size()
	}
	return size, nil
}
