package corpus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	maxSentences = 8
	// shortStory is the number of sentences if the prompt names none.
	shortStory     = "3"
	lastSentence   = "The end."
	openingPattern = "Once there was a {like1} {1}."
)

// {1} and {2} are the nouns; the other fields are in field.
var plot = []string{
	"The {1} saw a {like2} {2}.",
	"They met near the {home2}.",
	"The {2} wanted to {joy2}.",
	"The {1} wanted to {joy1}.",
	"So they went to the {home1}.",
	"The {2} was {mood}.",
}

var moods = []string{"happy", "sad", "tired", "proud"}

// field returns the likely filling of a gap and all fillings that the grammar allows.
func field(name string, a, b noun) (likely string, allowed []string) {
	gather := func(of func(noun) string) []string {
		var out []string
		for _, n := range nouns {
			out = append(out, of(n))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	switch name {
	case "like1":
		return a.like, gather(func(n noun) string { return n.like })
	case "like2":
		return b.like, gather(func(n noun) string { return n.like })
	case "home1":
		return a.home, gather(func(n noun) string { return n.home })
	case "home2":
		return b.home, gather(func(n noun) string { return n.home })
	case "joy1":
		return a.joy, gather(func(n noun) string { return n.joy })
	case "joy2":
		return b.joy, gather(func(n noun) string { return n.joy })
	case "mood":
		return moods[0], moods
	case "1":
		return a.name, []string{a.name}
	case "2":
		return b.name, []string{b.name}
	}
	panic("corpus: no story field " + name)
}

// A story of one sentence still names both nouns.
func patterns(n int) []string {
	if n == 1 {
		return []string{"Once a {like1} {1} met a {like2} {2}."}
	}
	out := []string{openingPattern}
	if n == 2 {
		return append(out, plot[0])
	}
	out = append(out, plot[:n-2]...)
	return append(out, lastSentence)
}

func tell(t Task, choose func(likely string, allowed []string) string) string {
	a, _ := nounOf(t.Args[1])
	b, _ := nounOf(t.Args[2])
	var out []string
	for _, p := range patterns(number(t.Args[0])) {
		for {
			head, rest, found := strings.Cut(p, "{")
			if !found {
				break
			}
			name, tail, _ := strings.Cut(rest, "}")
			likely, allowed := field(name, a, b)
			p = head + choose(likely, allowed) + tail
		}
		out = append(out, article(p))
	}
	return strings.Join(out, " ")
}

func article(s string) string {
	for _, v := range "aeiou" {
		s = strings.ReplaceAll(s, " a "+string(v), " an "+string(v))
	}
	return s
}

// tell sometimes takes unlikely words, so that a sampled story varies and a greedy one does not depend on a near tie.
func (g *Generator) tell(t Task) string {
	return tell(t, func(likely string, allowed []string) string {
		if len(allowed) > 1 && g.chance(20) {
			return pick(g, allowed)
		}
		return likely
	})
}

func (g *Generator) answer(t Task) string {
	if t.Skill == Story {
		return g.tell(t)
	}
	return t.Answer()
}

func checkStory(t Task, text string) error {
	a, _ := nounOf(t.Args[1])
	b, _ := nounOf(t.Args[2])
	got := strings.SplitAfter(text, ". ")
	want := patterns(number(t.Args[0]))
	if len(got) != len(want) {
		return fmt.Errorf("story has %d sentences, want %s", len(got), strconv.Itoa(len(want)))
	}
	for i, s := range got {
		if err := matches(want[i], strings.TrimSuffix(s, " "), a, b); err != nil {
			return fmt.Errorf("sentence %d: %w", i+1, err)
		}
	}
	return nil
}

func matches(pattern, sentence string, a, b noun) error {
	want, got := strings.Fields(pattern), strings.Fields(sentence)
	if len(want) != len(got) {
		return fmt.Errorf("%q does not follow %q", sentence, pattern)
	}
	for i, w := range want {
		word := got[i]
		if w == "a" && i+1 < len(got) {
			if article(" a "+got[i+1]) != " "+word+" "+got[i+1] {
				return fmt.Errorf("%q has the wrong article before %q", sentence, got[i+1])
			}
			continue
		}
		if !strings.HasPrefix(w, "{") {
			if word != w {
				return fmt.Errorf("%q does not follow %q", sentence, pattern)
			}
			continue
		}
		name, dot, _ := strings.Cut(w[1:], "}")
		_, allowed := field(name, a, b)
		if plain, ok := strings.CutSuffix(word, dot); !ok || !slices.Contains(allowed, plain) {
			return fmt.Errorf("%q does not fit %q", word, w)
		}
	}
	return nil
}
