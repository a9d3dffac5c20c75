package protocol

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestLegible checks that messages cannot control a terminal and are otherwise unchanged.
func TestLegible(t *testing.T) {
	for raw, want := range map[string]string{
		`plain ü 😀 \ud83d\ude00`: "plain ü 😀 😀",
		`two\nlines\t\u000a`:     "two\nlines\t\n",
		`\u001b[31m`:             "\uFFFD[31m",
		`\u001B[31m`:             "\uFFFD[31m",
		`\\u001b[31m`:            `\u001b[31m`,
		`a\bb\ff`:                "a\uFFFDb\uFFFDf",
		"\x7f \u009b \u202e":     "\uFFFD \uFFFD \uFFFD",
		`\u009b\u202e\"\/\\`:     "\uFFFD\uFFFD\"/\\",
	} {
		var up Up
		if err := (codec{}).Unmarshal([]byte(`{"hello": {"version":"`+raw+`"}}`), &up); err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if up.Hello.Version != want {
			t.Errorf("%s: %q, want %q", raw, up.Hello.Version, want)
		}
	}
}

func FuzzLegible(f *testing.F) {
	f.Add("a\x1b\u202e\\")
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.Marshal(Up{Hello: &Hello{Version: text}})
		if err != nil {
			t.Fatal(err)
		}
		var up Up
		if err := (codec{}).Unmarshal(raw, &up); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(up.Hello.Version, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) }) {
			t.Errorf("%q becomes %q", text, up.Hello.Version)
		}
	})
}
