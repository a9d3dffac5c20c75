package constrain_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// words is a vocabulary of texts: the 256 bytes, these, and an end token, which is the last.
type words []string

func (w words) Size() int { return 256 + len(w) + 1 }

func (w words) Piece(id int32) []byte {
	switch {
	case id < 256:
		return []byte{byte(id)}
	case int(id) < w.Size()-1:
		return []byte(w[id-256])
	}
	return nil
}

func (w words) IsEnd(id int32) bool { return int(id) == w.Size()-1 }

// speak makes a text of at most limit tokens by random choices from the mask. done reports whether it ended.
func speak(t testing.TB, g constrain.Grammar, w words, r *rand.Rand, limit int) (text string, done bool) {
	t.Helper()
	m := g.Matcher()
	mask := make([]uint64, constrain.Words(w.Size()))
	for range limit {
		m.Mask(mask)
		var allowed []int32
		for id := range int32(w.Size()) {
			if constrain.Allows(mask, id) {
				allowed = append(allowed, id)
			}
		}
		if len(allowed) == 0 {
			t.Fatalf("after %q nothing may follow", text)
		}
		id := allowed[r.IntN(len(allowed))]
		if end := int32(w.Size() - 1); constrain.Allows(mask, end) && r.IntN(3) == 0 {
			id = end
		}
		if err := m.Accept(id); err != nil {
			t.Fatalf("after %q the mask has token %d, %q: %v", text, id, w.Piece(id), err)
		}
		text += string(w.Piece(id))
		if w.IsEnd(id) {
			if !m.Done() {
				t.Fatal("an end token, and not done")
			}
			return text, true
		}
	}
	return text, false
}

// accepts reports whether a grammar takes a text, token by token of single bytes.
func accepts(g constrain.Grammar, w words, text string) bool {
	m := g.Matcher()
	for _, b := range []byte(text) {
		if m.Accept(int32(b)) != nil {
			return false
		}
	}
	return m.Accept(int32(w.Size()-1)) == nil
}

var english = words{"the", "a", "ab", "abc", "b", "12", "123", ".5", "é", "€", "\xe2\x82", "{\"", "\":", "\",\"", "\"}", "]}", " ", "  ", "true", "false", "nu", "ll", "-", "x", "xx", "[TOOL]"}

func compile(t testing.TB, f constrain.Form, w words) constrain.Grammar {
	t.Helper()
	g, err := constrain.Compile(t.Context(), nil, f, constrain.NewVocabulary(w))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestTogether runs many texts of one grammar at once, in many goroutines.
func TestTogether(t *testing.T) {
	form, err := constrain.Schema(t.Context(), nil, []byte(person))
	if err != nil {
		t.Fatal(err)
	}
	g := compile(t, form, english)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range 20 {
				if text, done := speak(t, g, english, r, 100); done && !json.Valid([]byte(text)) {
					t.Errorf("%q is no JSON", text)
				}
			}
		})
	}
	all.Wait()
}

// TestReset checks that a grammar does not refer to dropped states, and that texts continue.
func TestReset(t *testing.T) {
	g := compile(t, constrain.JSONValue(), english)
	m := g.Matcher()
	for i, b := range []byte(`{"a":[1,"b"]}`) {
		if i == 7 && !constrain.Reset(g) {
			t.Error("a new text begins at a state that leads to dropped ones")
		}
		if err := m.Accept(int32(b)); err != nil {
			t.Fatal(err)
		}
	}
	if !m.Done() || !accepts(g, english, "[{}]") {
		t.Error("a text does not end, or a new one does not begin")
	}
}

// TestTokenOfCharacterFF checks that the mark of control tokens, a byte, does not exclude the character of its number.
func TestTokenOfCharacterFF(t *testing.T) {
	w := words{"ÿ"}
	m := compile(t, constrain.Text("ÿ"), w).Matcher()
	mask := make([]uint64, constrain.Words(w.Size()))
	if m.Mask(mask); !constrain.Allows(mask, 256) || m.Accept(256) != nil {
		t.Error("the token ÿ is not allowed in the text ÿ")
	}
}

func TestLongRepetitions(t *testing.T) {
	f, err := constrain.GBNF(t.Context(), nil, `root ::= "a"{0,4294967297}`)
	if err != nil {
		t.Fatal(err)
	}
	if !accepts(compile(t, f, english), english, "aaa") {
		t.Error("a limit beyond 32 bits is shortened")
	}
	f, err = constrain.Schema(t.Context(), nil, []byte(`{"type":"string","pattern":"^a{300000}$"}`))
	if err == nil {
		_, err = constrain.Compile(t.Context(), nil, f, constrain.NewVocabulary(english))
	}
	if _, ok := errors.AsType[*constrain.FormError](err); !ok {
		t.Errorf("a pattern whose minimum can't be counted: got %v, want a FormError", err)
	}
}

func TestRegex(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, pattern := range []string{
		`abc`, `a*b`, `(a|b)+x?`, `[a-c]{2,4}`, `\d{3}-\d{4}`, `(the|a) (x|xx)+`, `[^a]b`, `é+€`, `(?i)the`, `.{0,5}`, `[α-ω]+`, `(a*)*b`, `^ab$`, `(ab|abc|a)(c|b)?`,
		`-?(0|[1-9][0-9]*)(\.[0-9]+)?`, `[\x{1F600}-\x{1F64F}]`, `(|a)(|b)`, `[^\x00-\x7f]`,
	} {
		f, err := constrain.Regex(t.Context(), nil, pattern)
		if err != nil {
			t.Fatal(err)
		}
		g := compile(t, f, english)
		re := regexp.MustCompile(`^(?:` + pattern + `)$`)
		ended := 0
		for range 200 {
			text, done := speak(t, g, english, r, 30)
			if !done {
				continue
			}
			ended++
			if !re.MatchString(text) {
				t.Errorf("%s: %q does not match", pattern, text)
			}
		}
		if ended < 20 {
			t.Errorf("%s: only %d texts ended", pattern, ended)
		}
	}
}
