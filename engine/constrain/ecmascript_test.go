package constrain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// asked is a pattern and texts, for JavaScript.
type asked struct {
	Pattern string   `json:"pattern"`
	Texts   []string `json:"texts"`
}

// TestPatternsInJavaScript compares random patterns, ROUSE_TRIALS of them, with Node's. A text of the grammar must match
// there. An ASCII text that matches there must be in the grammar if the pattern anchors both ends; otherwise the
// grammar may have fewer texts.
func TestPatternsInJavaScript(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not there: its RegExp is not asked")
	}
	trials := 400
	if n, err := strconv.Atoi(os.Getenv("ROUSE_TRIALS")); err == nil {
		trials = n
	}
	r := &patterns{rand.New(rand.NewPCG(9, 9))}
	all := make([]asked, trials)
	for i := range all {
		all[i].Pattern = r.whole()
		for range 30 {
			all[i].Texts = append(all[i].Texts, r.text())
		}
	}
	answers := askNode(t, all)
	taken, refused, had := 0, 0, 0
	for i, a := range all {
		source, err := json.Marshal(map[string]any{"type": "string", "pattern": a.Pattern})
		if err != nil {
			t.Fatal(err)
		}
		form, err := constrain.Schema(t.Context(), constrain.NewBudget(), source)
		var g constrain.Grammar
		if err == nil {
			g, err = constrain.Compile(t.Context(), constrain.NewBudget(), form, constrain.NewVocabulary(english))
		}
		var known *constrain.FormError
		switch {
		case errors.As(err, &known):
			refused++
			if strings.Contains(known.Message, "no text") && len(answers[i]) > 0 {
				for k, matched := range answers[i] {
					if matched && ascii(a.Texts[k]) && whole(a.Pattern) {
						t.Errorf("%s is refused (%s), but JavaScript finds it in %q", a.Pattern, known.Message, a.Texts[k])
					}
				}
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", a.Pattern, err)
			continue
		case answers[i] == nil:
			t.Errorf("%s is taken, but is no pattern to JavaScript", a.Pattern)
			continue
		}
		taken++
		for k, text := range a.Texts {
			takes := accepts(g, english, compactOf(quoted(t, text)))
			if takes && !answers[i][k] || !takes && answers[i][k] && ascii(text) && whole(a.Pattern) {
				t.Errorf("%s and %q: the grammar says %v, JavaScript %v", a.Pattern, text, takes, answers[i][k])
			}
			if takes {
				had++
			}
		}
	}
	t.Logf("%d patterns taken, %d refused; %d texts had", taken, refused, had)
	if taken < trials/3 || had < taken {
		t.Error("too few patterns were compared")
	}
}

// askNode returns the answers of testdata/regexp.mjs.
func askNode(t *testing.T, all []asked) [][]bool {
	t.Helper()
	var in bytes.Buffer
	e := json.NewEncoder(&in)
	for _, a := range all {
		if err := e.Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", "testdata/regexp.mjs")
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(out))
	answers := make([][]bool, len(all))
	for i := range answers {
		if err := d.Decode(&answers[i]); err != nil {
			t.Fatal(err)
		}
	}
	return answers
}

func quoted(t *testing.T, text string) []byte {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func whole(pattern string) bool {
	return strings.HasPrefix(pattern, "^(") && strings.HasSuffix(pattern, ")$")
}

func ascii(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) < 0 }

// patterns makes random patterns and texts.
type patterns struct{ *rand.Rand }

func (r *patterns) one(of ...string) string { return of[r.IntN(len(of))] }

// whole returns a pattern, usually one that matches the text from end to end.
func (r *patterns) whole() string {
	p := r.alternatives(3)
	switch r.IntN(6) {
	case 0:
		return p
	case 1:
		return "^" + p
	case 2:
		return r.one("^(?=.*a)", "^(?!.*b)", "^(?=.{2,6}$)", `^(?!\d)`) + "(?:" + p + ")$"
	}
	return "^(?:" + p + ")$"
}

func (r *patterns) alternatives(depth int) string {
	var parts []string
	for range 1 + r.IntN(10)/7 {
		var b strings.Builder
		for range 1 + r.IntN(3) {
			b.WriteString(r.piece(depth))
		}
		parts = append(parts, b.String())
	}
	return strings.Join(parts, "|")
}

func (r *patterns) piece(depth int) string {
	p := r.atom(depth)
	if p == `\b` || p == `\B` || r.IntN(3) > 0 {
		return p
	}
	return p + r.one("*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??", "{1,2}?")
}

func (r *patterns) atom(depth int) string {
	switch n := r.IntN(12); {
	case n < 2 && depth > 0:
		return r.one("(", "(?:", "(?<n"+strconv.Itoa(r.IntN(1e9))+">") + r.alternatives(depth-1) + ")"
	case n < 5:
		return r.one("[", "[^") + r.member() + r.one("", r.member()) + "]"
	case n < 8:
		return r.one(".", `\d`, `\D`, `\w`, `\W`, `\s`, `\S`, `\p{L}`, `\P{L}`, `\p{Lu}`, `\p{Nd}`, `\p{P}`, `\p{Script=Greek}`, `\p{ASCII}`, `\p{Any}`, `\P{Lu}`, `\b`, `\B`)
	case n == 8:
		return r.one(`\.`, `\/`, `\$`, `\n`, `\t`, `\x41`, `\u0062`, `\u{63}`, `\cJ`, `\0`, `\^`, `\\`, `\ud83d\ude00`)
	}
	return r.one("a", "b", "A", "1", "_", "-", " ", "é", "α", "😀", "ab", "/")
}

// member returns a random member of a class.
func (r *patterns) member() string {
	return r.one("a", "b", "a-c", "A-Z", "0-9", "_", `\d`, `\D`, `\w`, `\W`, `\s`, `\S`, `\p{L}`, `\P{L}`, `\-`, `\]`, "é", "α-ω", " ", ".", "$", `\n`, `\u0061-\u0063`, "😀")
}

func (r *patterns) text() string {
	var b strings.Builder
	for range r.IntN(7) {
		b.WriteString(r.one("a", "b", "c", "A", "Z", "1", "9", "_", "-", " ", ".", "/", "$", "\n", "\t", "]", `\`, "\"", "é", "α", "😀", "\u00a0", "\u2028", "٣", "語", "ſ", "\u212a", "\x00", "\u0085", "\ufeff"))
	}
	return b.String()
}
