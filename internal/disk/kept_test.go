package disk

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

var value = map[string]int{"default/a": 1, "default/b": 20, "a <b> & \u2028": 300}

// TestKept checks that written values are read, indented or not, and that any truncation or flipped bit never yields
// another value.
func TestKept(t *testing.T) {
	text, err := Encode(2, value)
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", " "); err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{text, indented.Bytes()} {
		same := func(what string, text []byte, want bool) {
			got := map[string]int{}
			if err := Decode(text, 2, &got); err == nil && !maps.Equal(got, value) || err != nil && want {
				t.Errorf("%s: %v, %v", what, got, err)
			}
		}
		same("whole", text, true)
		for n := range text {
			if err := Decode(text[:n], 2, new(any)); err == nil {
				t.Errorf("%d of %d bytes are read", n, len(text))
			}
			for bit := range 8 {
				changed := bytes.Clone(text)
				changed[n] ^= 1 << bit
				same("with another bit: "+string(changed), changed, false)
			}
		}
	}
	if err := Decode(text, 3, new(any)); err == nil || !strings.Contains(err.Error(), "version 2, and this program reads 3") {
		t.Errorf("another version: %v", err)
	}
	if _, err := Encode(1, func() {}); err == nil {
		t.Error("a function is kept")
	}
}

// FuzzRead checks that a value that was read can be written and read again unchanged.
func FuzzRead(f *testing.F) {
	text, _ := Encode(2, value)
	f.Add(text)
	f.Add([]byte(`{"version":2,"checksum":"00000000","value":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		if Decode(text, 2, &v) != nil {
			return
		}
		again, err := Encode(2, v)
		if err != nil {
			t.Fatal(err)
		}
		if err := Decode(again, 2, new(any)); err != nil {
			t.Errorf("%s becomes %s: %v", text, again, err)
		}
	})
}
