package jsonfield_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

func renameFold(body []byte, from, to string) []byte {
	o := jsonfield.Open(body)
	o.Fold = true
	o.Rename(from, to)
	return o.Bytes()
}

func deleteFold(body []byte, name string) []byte {
	o := jsonfield.Open(body)
	o.Fold = true
	o.Delete(name)
	return o.Bytes()
}

func TestEdits(t *testing.T) {
	set := func(name, value string) func([]byte) []byte {
		return func(b []byte) []byte { return jsonfield.Set(b, name, []byte(value)) }
	}
	rename := func(from, to string) func([]byte) []byte {
		return func(b []byte) []byte { return renameFold(b, from, to) }
	}
	remove := func(name string) func([]byte) []byte {
		return func(b []byte) []byte { return jsonfield.Delete(b, name) }
	}
	fold := func(name string) func([]byte) []byte {
		return func(b []byte) []byte { return deleteFold(b, name) }
	}
	for _, tc := range []struct {
		name       string
		edit       func([]byte) []byte
		body, want string
	}{
		{"set", set("a", `"x"`), ` { "a" : 1.0e5 , "b": [ ] } ` + "\n", ` { "a" : "x" , "b": [ ] } ` + "\n"},
		{"set every one", set("a", `2`), `{"a":1,"b":0,"\u0061":3}`, `{"a":2,"b":0,"\u0061":2}`},
		{"set a new one", set("a", `2`), `{"b":{"a":1}  }`, `{"b":{"a":1},"a":2  }`},
		{"set into nothing", set("a", `2`), `{ }`, `{"a":2 }`},
		{"set keeps an equal value", set("a", `2`), `{"a": 2}`, `{"a": 2}`},
		{"rename", rename("a", "b"), `{ "a" :1, "c":2}`, `{ "b" :1, "c":2}`},
		{"rename over another", rename("a", "b"), `{"b":0, "a":1,"b":2}`, `{ "b":1}`},
		{"rename without regard to case", rename("a", "b"), `{"A":1}`, `{"b":1}`},
		{"rename nothing", rename("a", "b"), `{"b":0,"c":{"a":1}}`, `{"b":0,"c":{"a":1}}`},
		{"delete the first", remove("a"), `{ "a":1, "b":2}`, `{ "b":2}`},
		{"delete the last", remove("a"), `{"b":2 , "a":1 }`, `{"b":2 }`},
		{"delete the middle", remove("a"), `{"b":2 , "a":1 ,"c":[{"a":1}]}`, `{"b":2 ,"c":[{"a":1}]}`},
		{"delete all", remove("a"), `{"a":{"x":[1,{"a":","}]},"\u0061":2,"a":"}"}`, `{}`},
		{"delete the empty name", remove(""), `{"":1,"a":2}`, `{"a":2}`},
		{"delete looks at case", remove("a"), `{"A":1}`, `{"A":1}`},
		{"delete without regard to case", fold("keep_alive"), `{"Keep_Alive":0,"b":1,"\u212aeep_alive":1,"keepalive":2}`, `{"b":1,"keepalive":2}`},
		{"an array", remove("a"), `[{"a":1}]`, `[{"a":1}]`},
		{"a form", remove("a"), "--x\r\nContent-Disposition: form-data\r\n", "--x\r\nContent-Disposition: form-data\r\n"},
		{"cut off", remove("a"), `{"a":1,"b":`, `{"a":1,"b":`},
		{"a second value", remove("a"), `{"a":1}{}`, `{"a":1}{}`},
		{"nothing", set("a", "1"), ``, ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := strings.Clone(tc.body)
			body := []byte(tc.body)
			if got := string(tc.edit(body)); got != tc.want {
				t.Errorf("%s became %s, want %s", tc.body, got, tc.want)
			}
			if string(body) != before {
				t.Errorf("the body itself was changed: %s", body)
			}
		})
	}
}

// TestManyEdits edits one object several times and reads it in between.
func TestManyEdits(t *testing.T) {
	o := jsonfield.Open([]byte(` { "a":1, "b" :2 } `))
	o.Set("c", []byte("3"))
	o.Set("c", []byte("4"))
	o.Delete("a")
	if got, want := string(o.Bytes()), ` { "b" :2,"c":4 } `; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	o.Rename("b", "model")
	o.Set("model", []byte(`"m"`))
	o.Delete("c")
	o.Set("d", []byte("5"))
	if value, found := o.Find("model"); !found || string(value) != `"m"` {
		t.Errorf("model is %s, %t", value, found)
	}
	if _, found := o.Find("b"); found {
		t.Error("a renamed field has its old name too")
	}
	names := ""
	o.Fields(func(name, _ []byte) bool { names += string(name); return true })
	if got, want := string(o.Bytes()), ` { "model" :"m","d":5 } `; got != want || names != `"model""d"` {
		t.Errorf("got %s with the names %s, want %s", got, names, want)
	}
	o.Delete("model")
	o.Delete("d")
	if got, want := string(o.Bytes()), ` {} `; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c := o.Clone()
	c.Set("only", []byte("1"))
	if got := string(o.Bytes()); got != ` {} ` || string(c.Bytes()) != ` {"only":1} ` {
		t.Errorf("got %s, and its copy %s", got, c.Bytes())
	}
	o.Replace([]byte(`[1]`))
	o.Set("a", []byte("1"))
	if got := string(o.Bytes()); got != `[1]` || o.Err() == nil || !o.Changed() {
		t.Errorf("an array became %s, with the error %v", got, o.Err())
	}
}

func TestFind(t *testing.T) {
	for _, tc := range []struct{ body, want string }{
		{`{"model":"m"}`, `"m"`}, {`{"model": 1 ,"\u006dodel" : [ 2 ] }`, `[ 2 ]`}, {`{"x":{"model":1}}`, ""},
		{`{"model":1}x`, ""}, {`{"Model":1}`, ""}, {`["model"]`, ""}, {`"model"`, ""}, {`{"a":{"model":1},"model":"n"}`, `"n"`},
	} {
		if got, found := jsonfield.Find([]byte(tc.body), "model"); string(got) != tc.want || found != (tc.want != "") {
			t.Errorf("%s: found %q, %t, want %q", tc.body, got, found, tc.want)
		}
	}
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	for body, want := range map[string]string{
		``: "ends too early, after 0 bytes", `{"a":1`: "ends too early, after 6 bytes", `[1]`: "want a JSON object, beginning with { at byte 0", `{"a":1}x`: "nothing after the object at byte 7",
		`{"a":tru}`: "invalid character '}' in literal true (expecting 'e') at byte", `{"a" 1}`: "at byte 5", `{'a':1}`: "invalid character '\\'' ", `{"a":1,}`: "at byte 6",
		`{"a":[1}`: "at byte 7", `{"a":"\x"}`: "invalid escape sequence", "{\"a\":\"\n\"}": "invalid character '\\n' in string", `{"a":-}`: "in number",
	} {
		if err := jsonfield.Open([]byte(body)).Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", body, err, want)
		}
	}
}

// Fuzz compares parsing and edits with encoding/json.
func Fuzz(f *testing.F) {
	for _, body := range []string{
		`{}`, ` { "a" : 1 , "b" : [ { "a" : "}" } ] , "\u0061" : null } `, `{"a":1}{}`, `[{"a":1}]`, `{"a":1,"a":2,"A":3}`,
		`{"\ud83d\ude00":1,"\ud83d":2,"a\/b":"\"","":-0.5e+3}`, "{\"\xff\":1}", `{"a":[[[]]],"b":{"a":{}}}`, `{"ſ":1,"s":2}`,
		`{"a":[` + strings.Repeat("[", 9997) + strings.Repeat("]", 9997) + `]}`,
	} {
		f.Add([]byte(body), "a", "b")
	}
	f.Add([]byte(`{"\ud83d\ude00":1,"\ud83d":2}`), "😀", "\ufffd")
	f.Fuzz(func(t *testing.T, body []byte, from, to string) {
		before := bytes.Clone(body)
		var want map[string]json.RawMessage
		object := json.Unmarshal(body, &want) == nil && want != nil
		if err := jsonfield.Open(body).Err(); (err == nil) != object {
			t.Fatalf("%q: %v, want an object: %t", body, err, object)
		}
		from, to = strings.ToValidUTF8(from, "\ufffd"), strings.ToValidUTF8(to, "\ufffd")
		value, found := jsonfield.Find(body, from)
		if raw, is := want[from]; found != is || !bytes.Equal(value, raw) {
			t.Fatalf("%q: found %q %t, want %q %t", body, value, found, raw, is)
		}
		results := map[string][]byte{
			"set": jsonfield.Set(body, from, []byte(`"new"`)), "delete": jsonfield.Delete(body, from), "rename": renameFold(body, from, to),
			"fold": deleteFold(body, from),
		}
		if !bytes.Equal(before, body) {
			t.Fatalf("the body was changed to %q", body)
		}
		alike := 0
		for name := range want {
			if strings.EqualFold(name, from) {
				alike++
			}
		}
		for name, got := range results {
			if name == "rename" && (alike != 1 || !found) {
				continue // readers choose one of several
			}
			if !object {
				if !bytes.Equal(got, body) {
					t.Fatalf("%s: %q became %q, want it unchanged", name, body, got)
				}
				continue
			}
			same(t, name, got, expected(name, want, from, to))
		}
	})
}

// expected returns the slow twin of an edit.
func expected(edit string, fields map[string]json.RawMessage, from, to string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, value := range fields {
		if edit != "fold" || !strings.EqualFold(name, from) {
			out[name] = value
		}
	}
	value, found := fields[from]
	switch {
	case edit == "set":
		out[from] = json.RawMessage(`"new"`)
	case edit == "delete":
		delete(out, from)
	case edit == "rename" && found:
		for name := range fields {
			if strings.EqualFold(name, from) || strings.EqualFold(name, to) {
				delete(out, name)
			}
		}
		out[to] = value
	}
	return out
}

func same(t *testing.T, name string, got []byte, want map[string]json.RawMessage) {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(got, &fields); err != nil {
		t.Fatalf("%s made %q: %v", name, got, err)
	}
	if len(fields) != len(want) {
		t.Fatalf("%s made %q, want the fields %v", name, got, want)
	}
	for k, v := range want {
		if !bytes.Equal(fields[k], v) {
			t.Fatalf("%s made %q: %q is %q, want %q", name, got, k, fields[k], v)
		}
	}
}

func Benchmark(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 1 << 20} {
		body := fmt.Appendf(nil, `{"model":"m","stream":true,"messages":[{"role":"user","content":"%s"}]}`, strings.Repeat("word and ", size/9))
		b.Run(fmt.Sprintf("find/%d", len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				jsonfield.Find(body, "keep_alive")
			}
		})
		b.Run(fmt.Sprintf("rename/%d", len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				renameFold(body, "model", "name")
			}
		})
	}
}

func TestItems(t *testing.T) {
	for array, want := range map[string][]string{
		`[]`: nil, `[ 1 , "],", [2,[3]],{"a":[4]} ]`: {`1`, `"],"`, `[2,[3]]`, `{"a":[4]}`},
	} {
		var got []string
		if err := jsonfield.Items([]byte(array), func(item []byte) bool { got = append(got, string(item)); return true }); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", array, got, err, want)
		}
	}
	for _, bad := range []string{``, `{}`, `[1`, `[1,]`, `[1 2]`, `1`} {
		if err := jsonfield.Items([]byte(bad), func([]byte) bool { return true }); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	n := 0
	if err := jsonfield.Items([]byte(`[1,2,3]`), func([]byte) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("%d items, %v; want to stop at 2", n, err)
	}
}

// FuzzText compares Text with encoding/json.
func FuzzText(f *testing.F) {
	for _, s := range []string{`""`, `"a"`, `"\u00e9\n"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`, `"\/\b\f\r\t\"\\"`, `"é😀\\u0041"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, quoted []byte) {
		var want string
		if !utf8.Valid(quoted) || len(quoted) == 0 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' || json.Unmarshal(quoted, &want) != nil {
			return
		}
		if got := jsonfield.Text(quoted); string(got) != want {
			t.Fatalf("%s is %q, want %q", quoted, got, want)
		}
	})
}
