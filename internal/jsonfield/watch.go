package jsonfield

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Watch finds fields that two servers, or a server and who stands before it, take for
// different things: a name that occurs twice, of which some take the first and some the
// last; and one that is a name but for its case, which some take for it and some ignore.
// It belongs to one goroutine and one body.
type Watch struct {
	// Names are those that matter, in lower case, at most 64.
	Names []string
	seen  uint64
}

// See takes the name of a field as it is written, as [Each] hands it out. It returns what
// is wrong with it.
func (w *Watch) See(name []byte) error {
	key := name[1 : len(name)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		var plain string
		if json.Unmarshal(name, &plain) != nil {
			return nil // it is no name of ours
		}
		key = []byte(plain)
	}
	if len(key) == 0 {
		return nil
	}
	for i, n := range w.Names {
		switch {
		case key[0]|0x20 != n[0] && key[0] < utf8.RuneSelf: // nearly all
		case string(key) == n && w.seen&(1<<i) != 0:
			return fmt.Errorf("the field %s occurs twice: send it once", n)
		case string(key) == n:
			w.seen |= 1 << i
			return nil
		case bytes.EqualFold(key, []byte(n)):
			return fmt.Errorf("the field %q is not %s: write it so, or leave it out", key, n)
		}
	}
	return nil
}

// Saw says whether a field with that name, one of Names, was seen.
func (w *Watch) Saw(name string) bool {
	i := slices.Index(w.Names, name)
	return i >= 0 && w.seen&(1<<i) != 0
}

// Read are the fields that whoever stands before a model server reads too.
var Read = []string{"model", "stream", "priority", "service_tier", "max_tokens", "max_completion_tokens", "cache_salt"}
