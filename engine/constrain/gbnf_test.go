package constrain_test

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/constrain"
)

func TestGBNF(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, test := range []struct{ grammar, want string }{
		{`root ::= "yes" | "no"`, `yes|no`},
		{"root ::= \"a\" b* # comment\nb ::= [0-9] |\n  \"x\"", `a([0-9]|x)*`},
		{"root ::= (\"a\"\n  \"b\")+ c?\nc ::= \"\\x21\\u20AC\\n\"", `(ab)+(!€\n)?`},
		{`root ::= [^a-z\]]{2,3} "."{2} . `, `[^a-z\]]{2,3}\.\.(?s:.)`},
		{`root ::= "" | "(" root ")"`, `\(*\)*`},
		{"root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"", `[-+*/()0-9]+`},
		{"root ::= ws \"x\"\nws ::= ([ \\t\\n] ws)?", `[ \t\n]*x`},
	} {
		f, err := constrain.GBNF(t.Context(), nil, test.grammar)
		if err != nil {
			t.Errorf("%s: %v", test.grammar, err)
			continue
		}
		g := compile(t, f, english)
		re, ended := regexp.MustCompile(`^(?:`+test.want+`)$`), 0
		for range 100 {
			text, done := speak(t, g, english, r, 40)
			if done {
				ended++
			}
			if done && (!re.MatchString(text) || strings.Count(text, "(") != strings.Count(text, ")")) && !strings.Contains(test.want, `\]`) {
				t.Errorf("%s: %q", test.grammar, text)
			}
		}
		if ended == 0 {
			t.Errorf("%s: no text ended", test.grammar)
		}
	}
}

func TestGBNFRefusals(t *testing.T) {
	for grammar, want := range map[string]string{
		``:                            "no rule called root",
		`start ::= "a"`:               "no rule called root",
		`root: "a"`:                   "want a rule",
		`root ::= other`:              "does not have",
		"root ::= \"a\nb\"":           "line",
		`root ::= ("a"`:               "missing",
		`root ::= "a"{3,1}`:           "smaller",
		`root ::= "a"{x}`:             "repetition",
		`root ::= [z-a]`:              "backwards",
		`root ::= "\q"`:               "escape",
		`root ::= "\uD800"`:           "hexadecimal",
		`root ::= <think>`:            "tokens",
		"root ::= \"a\"\nroot ::= b":  "twice",
		`root ::= root "a" | "b"`:     "begins with itself",
		"root ::= a root\na ::= \"\"": "",
		"root ::= e root \"x\" | \"y\"\ne ::= \"z\"?": "begins with itself",
		`root ::= "a" root`:                           "no text",
		`root ::= ((("a"{500}){500}){500}){500}`:      "too large",
		"root ::= " + strings.Repeat("(", 500):        "deep",
	} {
		f, err := constrain.GBNF(t.Context(), nil, grammar)
		if err == nil {
			_, err = constrain.Compile(t.Context(), nil, f, constrain.NewVocabulary(english))
		}
		var known *constrain.FormError
		if !errors.As(err, &known) || !strings.Contains(known.Message, want) {
			t.Errorf("%.80q: got %v, want an error with %q", grammar, err, want)
		}
	}
}

// FuzzGBNF checks that no grammar causes a panic or a dead end, or takes long.
func FuzzGBNF(f *testing.F) {
	f.Add("root ::= \"a\" b* # comment\nb ::= [0-9] |\n  \"x\"")
	f.Add("root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"")
	f.Add(`root ::= [^a-z\]]{2,3} "."{2} . `)
	f.Fuzz(func(t *testing.T, grammar string) {
		form, err := constrain.GBNF(t.Context(), nil, grammar)
		if err != nil {
			return
		}
		g, err := constrain.Compile(t.Context(), nil, form, constrain.NewVocabulary(english))
		if err != nil {
			return
		}
		speak(t, g, english, rand.New(rand.NewPCG(1, 1)), 20)
	})
}

// TestMask compares masks with the results of Accept for each token, over texts of all kinds of forms.
func TestMask(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	var forms []constrain.Form
	for _, s := range schemas {
		f, err := constrain.Schema(t.Context(), nil, []byte(s))
		if err != nil {
			t.Fatal(err)
		}
		forms = append(forms, f)
	}
	for _, p := range []string{`.*`, `(a|b)*a(a|b){5}`, `(the|a|ab|abc)*x`, `\pL+`} {
		f, err := constrain.Regex(t.Context(), nil, p)
		if err != nil {
			t.Fatal(err)
		}
		forms = append(forms, f)
	}
	forms = append(forms, constrain.Sequence(constrain.Text("["), constrain.Repeat(constrain.JSONValue(), 0, -1), constrain.Text("]é")))
	for i, f := range forms {
		g := compile(t, f, english)
		var text []int32
		m := g.Matcher()
		mask := make([]uint64, constrain.Words(english.Size()))
		for range 25 {
			m.Mask(mask)
			var allowed []int32
			for id := range int32(english.Size()) {
				n := g.Matcher()
				for _, id := range text {
					if err := n.Accept(id); err != nil {
						t.Fatal(err)
					}
				}
				takes := n.Accept(id) == nil
				if takes != constrain.Allows(mask, id) {
					t.Fatalf("form %d, after %v: token %d %q is accepted: %v, in the mask: %v", i, text, id, english.Piece(id), takes, !takes)
				}
				if takes && !english.IsEnd(id) {
					allowed = append(allowed, id)
				}
			}
			if len(allowed) == 0 {
				if !m.Done() {
					t.Fatalf("form %d, after %v: only an end may follow, and Done is false", i, text)
				}
				break
			}
			id := allowed[r.IntN(len(allowed))]
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
			text = append(text, id)
		}
	}
}
