package span_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/functions/pyfunc/internal/span"
)

// seeds are documents at the edges of the syntax.
var seeds = []string{
	``, ` `, `{}`, `[]`, `null`, `true`, `falsy`, `{"a":1}`, ` { "a" : [ 1 , -2.5e+3 , "b" ] } `, `{"a":1,}`, `[1,]`, `{,}`, `01`, `-`, `1.`, `1e`, `"\u00e9\n"`,
	`"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`, `"\x"`, `"\u12"`, "\"\n\"", `"open`, `"\`, `{"a"`, `{"a":`, `{"a":1 "b":2}`, `{a:1}`,
	`[[[[]]]]`, `{"a":{"b":{}}} x`, `"é😀"`, `NaN`, `"\/\b\f\r\t\"\\"`, `{"\u0061":1}`,
}

// FuzzDocument compares with encoding/json: the same documents are JSON, and
// strings and keys decode to the same.
func FuzzDocument(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) || nested(data) > 200 { // encoding/json mends the one, and allows more of the other
			return
		}
		from := span.Begin(data)
		to, err := document(data)
		if valid := json.Valid(data); valid != (err == nil) {
			t.Fatalf("%q: %v; encoding/json: %t", data, err, valid)
		}
		if err != nil {
			return
		}
		if got := bytes.TrimSpace(data); !bytes.Equal(got, data[from:to]) {
			t.Fatalf("%q: the value is %q", data, data[from:to])
		}
		switch data[from] {
		case '{':
			compareObject(t, data, from)
		case '[':
			var want []json.RawMessage
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			i := 0
			_, err := span.Array(data, from, func(from int) (int, error) {
				to, err := span.Skip(data, from)
				if err != nil || !bytes.Equal(want[i], data[from:to]) {
					t.Fatalf("%q: item %d is %q, want %q", data, i, data[from:to], want[i])
				}
				i++
				return to, nil
			})
			if err != nil || i != len(want) {
				t.Fatalf("%q: %d items, %v; want %d", data, i, err, len(want))
			}
		case '"':
			var want string
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			if got, end, err := span.Decode(bytes.Clone(data), from); err != nil || end != to || string(got) != want {
				t.Fatalf("%q is %q until %d, %v; want %q until %d", data, got, end, err, want, to)
			}
		}
	})
}

// document returns where the value of a document ends.
func document(data []byte) (end int, err error) {
	if end, err = span.Skip(data, span.Begin(data)); err == nil {
		err = span.End(data, end)
	}
	return end, err
}

func compareObject(t *testing.T, data []byte, from int) {
	var want map[string]json.RawMessage
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if _, err := span.Object(data, from, func(key []byte, from int) (int, error) {
		to, err := span.Skip(data, from)
		if err == nil {
			got[string(key)] = string(data[from:to])
		}
		return to, err
	}); err != nil || len(got) != len(want) {
		t.Fatalf("%q: %v, %v; want %d members", data, got, err, len(want))
	}
	for k, v := range want {
		if got[k] != string(v) {
			t.Fatalf("%q: %q is %q, want %q", data, k, got[k], v)
		}
	}
}

func nested(data []byte) (deepest int) {
	depth := 0
	for _, c := range data {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		deepest = max(deepest, depth)
	}
	return deepest
}

// FuzzEscape checks that encoding/json decodes what is escaped to what it was,
// and that Text does.
func FuzzEscape(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Add("\x00\x1f\x7f\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		once := append(span.Escape([]byte{'"'}, s), '"')
		var got string
		if err := json.Unmarshal(once, &got); err != nil || got != s {
			t.Fatalf("%q: once %q: %q, %v", s, once, got, err)
		}
		twice := append(span.EscapeTwice([]byte{'"'}, s), '"')
		if err := json.Unmarshal(twice, &got); err != nil || `"`+got+`"` != string(once) {
			t.Fatalf("%q: twice %q: %q, %v", s, twice, got, err)
		}
		first, _, err := span.Decode(twice, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := span.Decode(append(append([]byte{'"'}, first...), '"'), 0); err != nil || string(got) != s {
			t.Fatalf("%q comes back as %q, %v", s, got, err)
		}
	})
}

func TestTooDeep(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		_, err := document([]byte(strings.Repeat(open, span.MaxDepth+2)))
		if err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("%s…: %v, want an error about the depth", open, err)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for text, want := range map[string]string{
		`{"a" 1}`: "'1' stands where a colon must stand at byte 5",
		`[1`:      "it ends where a comma or the array's end must stand at byte 2",
		`tru`:     "'t' stands where true must stand at byte 0",
		`"\q"`:    "an escape is not one of JSON's at byte 1",
		`1 2`:     "there is more after the value at byte 2",
	} {
		if _, err := document([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
