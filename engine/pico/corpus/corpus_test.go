package corpus

import (
	"strings"
	"testing"
)

func TestGeneratorIsAFunctionOfItsSeed(t *testing.T) {
	a, b, c := New(7, Training), New(7, Training), New(8, Training)
	same := 0
	for range 500 {
		x, y, z := a.Sample(), b.Sample(), c.Sample()
		if x.Prompt() != y.Prompt() || x.Answer != y.Answer || len(x.Messages) != len(y.Messages) {
			t.Fatalf("equal seeds give %q and %q", x.Prompt(), y.Prompt())
		}
		if x.Prompt() == z.Prompt() {
			same++
		}
	}
	if same > 50 {
		t.Errorf("different seeds agree on %d of 500 prompts", same)
	}
}

// TestGeneratorKeepsItsSequence compares the first samples of a seed, because the weights and the model card depend
// on them.
func TestGeneratorKeepsItsSequence(t *testing.T) {
	g := New(1, HeldOut)
	var got strings.Builder
	for _, s := range Skills {
		x := g.SampleOf(s)
		got.WriteString(x.Prompt() + " => " + x.Answer + "\n")
	}
	if want := golden; got.String() != want {
		t.Errorf("the generator has changed, so the committed weights no longer fit the card\ngot\n%swant\n%s", got.String(), want)
	}
}

func TestSplitsAreDisjointInEveryTurn(t *testing.T) {
	for _, g := range []*Generator{New(3, Training), NewDrill(3)} {
		for range 20000 {
			s := g.Sample()
			for _, m := range s.Messages {
				if task := Parse(m.Text); m.Role == User && task.HeldOut() {
					t.Fatalf("training asks the held-out %q", m.Text)
				}
			}
		}
	}
	held := New(3, HeldOut)
	for range 20000 {
		if s := held.SampleOf(pick(held, Skills)); !Parse(s.Prompt()).HeldOut() {
			t.Fatalf("held-out generator asks %q, which is trained", s.Prompt())
		}
	}
}

func TestAnswersPassTheirOwnCheck(t *testing.T) {
	for _, split := range []Split{Training, HeldOut} {
		g := New(4, split)
		for _, skill := range Skills {
			for range 2000 {
				s := g.SampleOf(skill)
				if got := Parse(s.Prompt()).Skill; got != skill {
					t.Fatalf("Parse(%q) is %s, drawn as %s", s.Prompt(), got, skill)
				}
				if err := Check(s.Prompt(), s.Answer); err != nil {
					t.Fatalf("%q: %v", s.Prompt(), err)
				}
				if err := Check(s.Prompt(), s.Answer+" x"); err == nil {
					t.Fatalf("%q: a wrong answer passes", s.Prompt())
				}
			}
		}
	}
}

func TestAnswer(t *testing.T) {
	for prompt, want := range map[string]string{
		"echo alpha beta":                        "alpha beta",
		"Please echo Hello World":                "Hello World",
		"reverse alpha beta gamma":               "gamma beta alpha",
		"Upper: alpha beta":                      "ALPHA BETA",
		"count alpha beta":                       "2",
		"sort delta alpha":                       "alpha delta",
		"add 12 7":                               "19",
		"12+7":                                   "19",
		"What is 12 + 7?":                        "19",
		"convert 12 kg to g":                     "12000 g",
		"How many g are 12 kg?":                  "12000 g",
		"convert 12000 g to kg":                  "12 kg",
		"json name=alice item=lamp age=7":        `{"name":"alice","item":"lamp","age":7}`,
		"story cat boat":                         "Once there was a quiet cat. The cat saw a red boat. The end.",
		"story 1 owl wizard":                     "Once a wise owl met an old wizard.",
		"Tell me a story about a cat and a dog.": "Once there was a quiet cat. The cat saw a loud dog. The end.",
		"What is the capital of France?":         HelpText,
		"convert 12 kg to cm":                    HelpText,
		"add 1 99999999999999999999":             HelpText,
		"":                                       HelpText,
	} {
		if got := Parse(prompt).Answer(); got != want {
			t.Errorf("%q: got %q, want %q", prompt, got, want)
		}
	}
}

func TestStoryGrammar(t *testing.T) {
	const prompt = "story cat boat"
	for text, good := range map[string]bool{
		"Once there was a quiet cat. The cat saw a red boat. The end.":          true,
		"Once there was an old cat. The cat saw a huge boat. The end.":          true,
		"Once there was a old cat. The cat saw a huge boat. The end.":           false,
		"Once there was a quiet cat. The cat saw a red dog. The end.":           false,
		"Once there was a quiet cat. The cat saw a red boat.":                   false,
		"Once there was a quiet cat. The end. The cat saw a red boat.":          false,
		"Once there was a purple cat. The cat saw a red boat. The end.":         false,
		"Once there was a quiet cat. The cat saw a red boat. The end. The end.": false,
		"": false,
	} {
		if err := Check(prompt, text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
