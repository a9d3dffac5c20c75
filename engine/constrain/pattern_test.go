package constrain_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// TestPatterns checks which texts patterns of ECMA-262 match. A JavaScript engine with the flag u
// gives the same results, except for texts on which implementations disagree.
func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern   string
		yes, none []string
	}{
		{`^\S+$`, []string{"a", "é"}, []string{"", " ", "a b", "\u00a0", "\ufeff", "\u2028", "\v", "\u0085"}},
		{`^\s$`, []string{" ", "\t", "\n"}, []string{"", "a", "  "}},
		{`^[^\s]$`, []string{"a"}, []string{" ", "\u00a0", "\u2003", "\x1f"}},
		{`^.$`, []string{"a", "\t", "😀"}, []string{"\n", "\r", "\u2028", "\u2029", ""}},
		{`^\d+$`, []string{"0", "99"}, []string{"٣", "a"}},
		{`^\D$`, []string{"a", "-"}, []string{"5", "٣"}},
		{`^\w+$`, []string{"aZ_9"}, []string{"é", "-", "ſ"}},
		{`^\W$`, []string{"-", "€"}, []string{"a", "_", "é"}},
		{`^\p{L}+$`, []string{"aé", "語"}, []string{"1", "-"}},
		{`^\p{Letter}\p{gc=Nd}\p{Script=Greek}$`, []string{"a5α"}, []string{"a5b", "55α"}},
		{`^\P{L}+$`, []string{"1-"}, []string{"a", "語", "\U000e0fff"}},
		{`^[^\p{Lu}]$`, []string{"a"}, []string{"A", "\U000e0fff"}},
		{`^\p{Lu}\p{ASCII}$`, []string{"Éa"}, []string{"éa", "Éé"}},
		{`^[\w.+-]+@[\w-]+\.[a-z]{2,}$`, []string{"a.b@c-d.de"}, []string{"a@b", "@c.de"}},
		{`^\u{1F600}\u0041\x42\cJ\/\-$`, []string{"😀AB\n/-"}, []string{"😀AB\nx-"}},
		{`^\ud83d\ude00$`, []string{"😀"}, []string{"a"}},
		{`^{"a":\{\}}$`, []string{`{"a":{}}`}, []string{`{"a":{`}},
		{`^[a\]\-\b]{2}$`, []string{"]-", "\ba"}, []string{"]"}},
		{`^a{2}b{1,}c{0,2}$`, []string{"aab", "aabbcc"}, []string{"ab", "aabccc"}},
		{`^(?:a|(?<name>b)){2}?$`, []string{"ab", "bb"}, []string{"a", "abb"}},
		{`^a|b$`, []string{"ax", "xb", "a"}, []string{"xa", "bx"}},
		{`(^|x)a($|y)`, []string{"a", "zxay", "ay"}, []string{"za", "az"}},
		{`\bab\b`, []string{"ab", "x ab.", "-ab-"}, []string{"abc", "cab", "a b"}},
		{`^\Ba`, nil, []string{"ba"}},
		{`o\B`, []string{"or", "fox"}, []string{"o", "to be"}},
		{`^(?=.*\d)(?=.*[a-z]).{3,5}$`, []string{"a1-", "12z45"}, []string{"abc", "123", "a1", "abc123"}},
		{`^(?!.*--)[a-z-]+$`, []string{"a-b"}, []string{"a--b"}},
		{`^(?!$).*$`, []string{"a"}, []string{""}},
		{`^(?!(?:true|null)$)[a-z]+$`, []string{"tru", "nulls"}, []string{"true", "null"}},
		{`(?=a)`, []string{"a", "ba"}, []string{"", "b"}},
		{`^(?:(?!ab).)*$`, []string{"a", "ba", ""}, []string{"ab", "cabd"}},
		{`^[A-Z]\w*(?![\w])$`, []string{"Ab"}, []string{"ab"}},
		{`(?!^)a`, nil, nil},
		{`^$`, []string{""}, []string{"a"}},
		{`^a`, []string{"a", "abc"}, []string{"ba"}},
		{`a$`, []string{"a", "ba"}, []string{"ab"}},
	} {
		source, err := json.Marshal(map[string]any{"type": "string", "pattern": test.pattern})
		if err != nil {
			t.Fatal(err)
		}
		form, err := constrain.Schema(t.Context(), nil, source)
		var g constrain.Grammar
		if err == nil {
			g, err = constrain.Compile(t.Context(), nil, form, constrain.NewVocabulary(english))
		}
		if err != nil {
			if test.yes != nil {
				t.Errorf("%s: %v", test.pattern, err)
			}
			continue
		}
		takes := func(text string) bool {
			var b strings.Builder
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			if err := e.Encode(text); err != nil {
				t.Fatal(err)
			}
			written := strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSpace(b.String()))
			return accepts(g, english, written)
		}
		for _, text := range test.yes {
			if !takes(text) {
				t.Errorf("%s: has no %q", test.pattern, text)
			}
		}
		for _, text := range test.none {
			if takes(text) {
				t.Errorf("%s: has %q", test.pattern, text)
			}
		}
	}
}

// TestPatternRefusals checks that syntax that only other implementations support, or that they interpret differently,
// is refused.
func TestPatternRefusals(t *testing.T) {
	for pattern, want := range map[string]string{
		`(?i)a`:         "flags",
		`(?i:a)`:        "flags",
		`(?P<n>a)`:      "flags",
		`[[:alpha:]]`:   "[:",
		`[^[:space:]]`:  "[:",
		`\Aa`:           `\\A`,
		`a\z`:           `\\z`,
		`\Qa.b\E`:       `\\Q`,
		`\pL`:           `\\p`,
		`\p{Greek}`:     "property",
		`\p{IsGreek}`:   "property",
		`(a)\1`:         `\\1`,
		`(?<n>a)\k<n>`:  `\\k`,
		`(?<=a)b`:       "look-behind",
		`(?<!a)b`:       "look-behind",
		`(?>a)`:         "flags",
		`a++`:           "repeat",
		`a{,3}`:         "ECMA-262",
		`*a`:            "repeat",
		`a{3,1}`:        "smaller",
		`[b-a]`:         "backwards",
		`[]`:            "different",
		`[^]`:           "different",
		`(a`:            "missing",
		`a)`:            "without",
		`[a`:            "missing",
		`a\`:            "backslash",
		`\x{41}`:        "hexadecimal",
		`\ud83d`:        "surrogate",
		`(?=a)*`:        "repeated",
		`^(?=a(?!b)).*`: "look ahead",
	} {
		source, _ := json.Marshal(map[string]any{"type": "string", "pattern": pattern}) // any string can be marshaled
		_, err := constrain.Schema(t.Context(), nil, source)
		var known *constrain.FormError
		if !errors.As(err, &known) || !strings.Contains(known.Message, strings.ReplaceAll(want, `\\`, `\`)) {
			t.Errorf("%s: got %v, want an error with %q", pattern, err, want)
		}
	}
}
