package corpus

import (
	"fmt"
	"strings"
)

// Style is the way in which an adapter of pico answers: the plain answer in another form.
type Style struct {
	Name string
	// Apply turns a plain answer into one of this style.
	Apply func(answer string) string
	// plain is the inverse of Apply; ok is false if answer is not of this style.
	plain func(prompt, answer string) (plain string, ok bool)
}

const arr = " arr!"

// Styles lists the styles of the shipped adapters.
var Styles = []Style{
	{Name: "shout", Apply: strings.ToUpper, plain: unshout},
	{Name: "pirate", Apply: func(a string) string { return a + arr }, plain: func(_, a string) (string, bool) { return strings.CutSuffix(a, arr) }},
}

// StyleOf finds a style by its name.
func StyleOf(name string) (Style, bool) {
	for _, s := range Styles {
		if s.Name == name {
			return s, true
		}
	}
	return Style{}, false
}

// Only a story has several candidates: its words are in lower case except for the first letter of a sentence.
func unshout(prompt, answer string) (string, bool) {
	if answer != strings.ToUpper(answer) {
		return "", false
	}
	t := Parse(prompt)
	if t.Skill != Story {
		plain := t.Answer()
		return plain, strings.ToUpper(plain) == answer
	}
	sentences := strings.Split(strings.ToLower(answer), ". ")
	for i, s := range sentences {
		if s != "" {
			sentences[i] = strings.ToUpper(s[:1]) + s[1:]
		}
	}
	return strings.Join(sentences, ". "), true
}

// Check checks an answer to a prompt as the function Check does, and its style.
func (s Style) Check(prompt, answer string) error {
	plain, ok := s.plain(prompt, answer)
	if !ok {
		return fmt.Errorf("%q is no %s answer: want %q or the like", answer, s.Name, s.Apply(Parse(prompt).Answer()))
	}
	return Check(prompt, plain)
}
