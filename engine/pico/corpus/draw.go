package corpus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func (g *Generator) draw(skill Skill) Task {
	switch skill {
	case Echo, Upper:
		return Task{skill, g.copyable(1, 8)}
	case Reverse:
		return Task{skill, g.copyable(2, 6)}
	case Count:
		return Task{skill, g.copyable(1, 10)}
	case Sort:
		return Task{skill, g.words(g.between(2, 5))}
	case Add:
		return Task{skill, []string{g.addend(), g.addend()}}
	case Convert:
		return Task{skill, g.quantity()}
	case JSON:
		return Task{skill, g.pairs()}
	case Story:
		n := shortStory
		if g.chance(50) {
			n = strconv.Itoa(g.between(1, maxSentences))
		}
		at := g.rng.Perm(len(nouns))
		return Task{skill, []string{n, nouns[at[0]].name, nouns[at[1]].name}}
	default:
		return Task{Help, []string{g.offTopic()}}
	}
}

func (g *Generator) words(n int) []string {
	out := make([]string, n)
	for i, at := range g.rng.Perm(len(Words))[:n] {
		out[i] = Words[at]
	}
	return out
}

func (g *Generator) copyable(lo, hi int) []string {
	w := g.words(g.between(lo, hi))
	if g.chance(g.mix.stranger) {
		w[g.rng.IntN(len(w))] = g.stranger()
	}
	if g.chance(g.mix.capitals) {
		for i := range w {
			w[i] = title(w[i])
		}
	}
	return w
}

// stranger returns a word that is in no list, so that copying is learned for any word.
func (g *Generator) stranger() string {
	if g.chance(15) {
		return strconv.Itoa(g.between(0, 99))
	}
	const consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
	var b strings.Builder
	for n := g.between(1, 2); n >= 0; n-- {
		b.WriteByte(consonants[g.rng.IntN(len(consonants))])
		b.WriteByte(vowels[g.rng.IntN(len(vowels))])
		if g.chance(30) {
			b.WriteByte(consonants[g.rng.IntN(len(consonants))])
		}
	}
	if g.chance(20) {
		return title(b.String())
	}
	return b.String()
}

func (g *Generator) addend() string {
	if g.chance(15) {
		return strconv.Itoa(g.between(0, 9))
	}
	return strconv.Itoa(g.between(0, 99))
}

func (g *Generator) quantity() []string {
	u := pick(g, units)
	limit := 999
	if u.factor == 60 {
		limit = 20
	}
	n := g.between(1, limit)
	if g.chance(40) {
		n = g.between(1, min(limit, 30))
	}
	if g.chance(35) {
		return []string{strconv.Itoa(n * u.factor), u.small, u.big}
	}
	return []string{strconv.Itoa(n), u.big, u.small}
}

func (g *Generator) pairs() []string {
	keys := append(slices.Clone(Keys), NumberKeys...)
	g.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	out := make([]string, g.between(1, 4))
	for i := range out {
		v := strconv.Itoa(g.between(0, 199))
		if from, ok := keyValues[keys[i]]; ok {
			v = pick(g, from)
			if g.chance(30) {
				v = pick(g, Words)
			}
		}
		out[i] = keys[i] + "=" + v
	}
	return out
}

// offTopic returns a greeting or a question that pico cannot answer.
func (g *Generator) offTopic() string {
	if g.split == Training && g.chance(40) {
		return pick(g, greetings)
	}
	topic := pick(g, topics)
	if g.chance(30) {
		topic = pick(g, Words) + " " + topic
	}
	var s string
	switch g.rng.IntN(7) {
	case 0:
		s = fmt.Sprintf("%s %s the %s of %s?", pick(g, askers), pick(g, verbs), topic, pick(g, places))
	case 1:
		s = fmt.Sprintf("%s %s a %s in %s?", pick(g, askers), pick(g, verbs), topic, pick(g, places))
	case 2:
		s = fmt.Sprintf("%s me the %s of %s", pick(g, orders), topic, pick(g, places))
	case 3:
		s = fmt.Sprintf("%s a %s about %s.", pick(g, orders), topic, pick(g, places))
	case 4:
		s = fmt.Sprintf("%s %s the %s", pick(g, verbs), pick(g, Words), topic)
	case 5:
		s = fmt.Sprintf("can you %s my %s, please?", pick(g, orders), topic)
	default:
		s = strings.Join(append(g.words(g.between(1, 3)), topic, pick(g, places)), " ")
	}
	if g.chance(60) {
		s = title(s)
	}
	return s
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
