// Package ggufname says what the names of GGUF files say: which files are models, and which together are one. It reads no file's content.
// All functions may be called by many goroutines.
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

// part is a file of a model that llama-gguf-split has split.
var part = lazyregexp.New(`^(.+)-(\d{5})-of-(\d{5})(\.(?i:gguf))$`)

// other is a file that programs keep beside models: projectors of images, and matrices of importance.
var other = lazyregexp.New(`(?i)(^|[-._])(mmproj|imatrix)([-._]|$)`)

// split takes the name of a part of a model apart; count is 0 where it is none.
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

// Parts are the names of all files of the model of which name is one, in order: name alone, unless it is of the form
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

// Base is the name of a model's file without its folder, its extension and its number among several.
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

// Models are the first files of the models among names, sorted. A first file that is not among names is there too, where another
// part is; see [Missing].
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

// Missing is the error that a part of the model is not among names; nil if all are.
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

// Size is the size in bytes of all files of the model at path. The error names the file that can't be looked at.
func Size(path string) (size int64, err error) {
	for _, p := range Parts(path) {
		info, err := os.Stat(p)
		switch {
		case err != nil:
			return 0, err
		case !info.Mode().IsRegular():
			return 0, errors.New(p + " is not a file")
		}
		size += info.Size()
	}
	return size, nil
}
