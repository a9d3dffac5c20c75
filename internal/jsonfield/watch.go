package jsonfield

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Watch detects fields that two parsers may read differently. These are a repeated name, of which some use the first
// and some the last, and a name in another case, which some accept and some ignore. It belongs to one goroutine and
// one body.
type Watch struct {
	// Names are the names to check, in lower case, at most 64.
	Names []string
	seen  uint64
}

// See checks the raw name of a field, as yielded by [Each].
func (w *Watch) See(name []byte) error {
	key := name[1 : len(name)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		var plain string
		if json.Unmarshal(name, &plain) != nil {
			return nil // not one of Names
		}
		key = []byte(plain)
	}
	if len(key) == 0 {
		return nil
	}
	for i, n := range w.Names {
		switch {
		case key[0]|0x20 != n[0] && key[0] < utf8.RuneSelf: // the common case
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

// Saw reports whether a field with that name, one of Names, was seen.
func (w *Watch) Saw(name string) bool {
	i := slices.Index(w.Names, name)
	return i >= 0 && w.seen&(1<<i) != 0
}

// Read lists the fields that proxies in front of a model server read too.
var Read = []string{"model", "stream", "priority", "service_tier", "max_tokens", "max_completion_tokens", "cache_salt"}
