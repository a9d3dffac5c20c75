package vllmsim

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", "Hello world", "  two  spaces\n\n\ttab", "日本語 Größe 🙂", "1234567 x=3;", "\xff\xfe broken"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := Decode(Encode(s)); got != s {
			t.Errorf("Decode(Encode(%q)) = %q", s, got)
		}
	})
}

func TestTokensAreAsManyAsInRealTokenizers(t *testing.T) {
	const text = "Serverless platforms hold a client's request while the model behind it is woken, which takes some seconds on a large machine."
	if per := float64(len(text)) / float64(len(Encode(text))); per < 2.5 || per > 5.5 {
		t.Errorf("%.1f characters a token, want about 4", per)
	}
}

func TestTextIsAFunctionOfItsSeed(t *testing.T) {
	a, b := Text(Seed("m", "hi"), "", 0), Text(Seed("m", "hi"), "", 0)
	if !slices.Equal(a, b) {
		t.Error("one seed gives two texts")
	}
	if n := len(a); n < 15 || n > 140 {
		t.Errorf("%d tokens, want a text of natural length", n)
	}
	if other := Text(Seed("m", "ho"), "", 0); slices.Equal(a, other) {
		t.Error("two prompts give one text")
	}
	if n := len(Text(1, "", 500)); n < 500 {
		t.Errorf("%d tokens, want at least 500", n)
	}
	// Encoding the text again gives the same tokens: counts agree however they are made.
	if got := Encode(Decode(a)); !slices.Equal(got, a) {
		t.Errorf("tokens %v read back as %v", a, got)
	}
}

func TestVoicesDiffer(t *testing.T) {
	base, sql := Decode(Text(7, "", 0)), Decode(Text(7, "sql", 0))
	if !strings.HasPrefix(sql, "sql: ") || strings.HasPrefix(base, "sql") || base == sql {
		t.Errorf("base %q, adapter %q: want them to differ visibly", base, sql)
	}
}

func TestGarbageIsNoText(t *testing.T) {
	g := Garbage(3, 50)
	if len(g) != 50 || !utf8.ValidString(Decode(g)) {
		t.Errorf("%d tokens %q, want 50 of valid UTF-8", len(g), Decode(g))
	}
	if strings.Contains(Decode(g), "the") {
		t.Errorf("%q reads like a text", Decode(g))
	}
}

func FuzzPiece(f *testing.F) {
	f.Add(int64(-1))
	f.Add(int64(1 << 60))
	f.Fuzz(func(t *testing.T, n int64) {
		if len(Piece(Token(n))) > 20 {
			t.Errorf("token %d is %q", n, Piece(Token(n)))
		}
	})
}
