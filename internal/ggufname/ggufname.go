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

// Parts are the names of all files of the model of which name is one, in order: name alone, unless it is of the form
// NAME-00002-of-00003.gguf.
func Parts(name string) []string {
	m := part().FindStringSubmatch(name)
	if m == nil {
		return []string{name}
	}
	count, _ := strconv.Atoi(m[3]) // five digits
	if no, _ := strconv.Atoi(m[2]); no < 1 || no > count {
		return []string{name}
	}
	parts := make([]string, count)
	for i := range parts {
		parts[i] = fmt.Sprintf("%s-%05d-of-%s%s", m[1], i+1, m[3], m[4])
	}
	return parts
}

// Base is the name of a model's file without its folder, its extension and its number among several.
func Base(name string) string {
	name = path.Base(Parts(name)[0])
	if m := part().FindStringSubmatch(name); m != nil {
		return m[1]
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
		if strings.EqualFold(path.Ext(name), ".gguf") && !other().MatchString(Base(name)) {
			models = append(models, Parts(name)[0])
		}
	}
	slices.Sort(models)
	return slices.Compact(models)
}

// Missing is the error that a part of the model is not among names; nil if all are.
func Missing(model string, names []string) error {
	for _, p := range Parts(model) {
		if !slices.Contains(names, p) {
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
