package corpus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var wordings = map[Skill][]string{
	Add: {"{0} + {1}", "{0}+{1}", "what is {0} + {1}?", "What is {0} + {1}?", "What is {0} plus {1}?", "add {0} and {1}",
		"Add {0} and {1}."},
	Convert: {"convert {0} {1} to {2}.", "Convert {0} {1} to {2}.", "How many {2} are {0} {1}?", "What is {0} {1} in {2}?"},
	Story: {"Tell me a story about a {1} and a {2}.", "Write a story about a {1} and a {2}",
		"Tell me a short story about a {1} and a {2}."},
}

func (g *Generator) word(t Task) string {
	plain := t.Prompt()
	if t.Skill == Help || g.chance(50) {
		return plain
	}
	own := wordings[t.Skill]
	if t.Skill == Story && t.Args[0] != shortStory {
		own = nil
	}
	if own != nil && g.chance(50) {
		return fill(pick(g, own), t.Args)
	}
	head, rest, _ := strings.Cut(plain, " ")
	return pick(g, []string{title(head) + " ", "please " + head + " ", "Please " + head + " ", head + ": ", title(head) + ": "}) + rest
}

func fill(wording string, args []string) string {
	for i, a := range args {
		wording = strings.ReplaceAll(wording, fmt.Sprintf("{%d}", i), a)
	}
	return wording
}

// Parse reads a prompt in any wording. A prompt of no other skill is a Help task.
func Parse(prompt string) Task {
	for skill, list := range wordings {
		for _, w := range list {
			if args, ok := unfill(w, prompt); ok {
				if skill == Story {
					args[0] = shortStory
				}
				if t := (Task{skill, args}); t.valid() == nil {
					return t
				}
			}
		}
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(prompt, "please "), "Please ")
	head, rest, _ := strings.Cut(rest, " ")
	skill := Skill(strings.ToLower(strings.TrimSuffix(head, ":")))
	args := strings.Fields(rest)
	switch {
	case skill == Story && len(args) == 2:
		args = append([]string{shortStory}, args...)
	case skill == Convert && len(args) == 4 && args[2] == "to":
		args = []string{args[0], args[1], args[3]}
	}
	if t := (Task{skill, args}); t.valid() == nil && skill != Help {
		return t
	}
	return Task{Help, []string{prompt}}
}

// unfill is the inverse of fill; every argument is a run of letters and digits.
func unfill(wording, prompt string) ([]string, bool) {
	args := make([]string, 2)
	if strings.Contains(wording, "{2}") {
		args = make([]string, 3)
	}
	for {
		head, tail, gap := strings.Cut(wording, "{")
		rest, ok := strings.CutPrefix(prompt, head)
		if !ok {
			return nil, false
		}
		if !gap {
			return args, rest == ""
		}
		n := 0
		for n < len(rest) && plainByte(rest[n]) {
			n++
		}
		args[tail[0]-'0'], prompt, wording = rest[:n], rest[n:], tail[2:]
	}
}

func plainByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func plainWord(s string) bool {
	for i := range len(s) {
		if !plainByte(s[i]) {
			return false
		}
	}
	return s != "" && len(s) <= 16
}

var errNoTask = errors.New("not a task")

// valid includes being within pico's training.
func (t Task) valid() error {
	ok := false
	switch t.Skill {
	case Echo, Reverse, Upper, Count, Sort:
		ok = len(t.Args) >= 1 && len(t.Args) <= 10 && !slices.ContainsFunc(t.Args, func(s string) bool { return !plainWord(s) })
	case Add:
		ok = len(t.Args) == 2 && number(t.Args[0]) >= 0 && number(t.Args[1]) >= 0
	case Convert:
		if len(t.Args) == 3 && number(t.Args[0]) >= 0 {
			_, ok = convert(number(t.Args[0]), t.Args[1], t.Args[2])
		}
	case JSON:
		ok = len(t.Args) >= 1 && !slices.ContainsFunc(t.Args, func(s string) bool {
			k, v, found := strings.Cut(s, "=")
			return !found || !plainWord(k) || !plainWord(v)
		})
	case Story:
		if len(t.Args) == 3 && number(t.Args[0]) >= 1 && number(t.Args[0]) <= maxSentences {
			_, a := nounOf(t.Args[1])
			_, b := nounOf(t.Args[2])
			ok = a && b
		}
	case Help:
		ok = len(t.Args) == 1
	}
	if !ok {
		return errNoTask
	}
	return nil
}

// Check checks an answer to a prompt. A story must follow the grammar of stories.
func Check(prompt, answer string) error {
	t := Parse(prompt)
	if t.Skill == Story {
		return checkStory(t, answer)
	}
	if want := t.Answer(); answer != want {
		return fmt.Errorf("%s: got %q, want %q", t.Skill, answer, want)
	}
	return nil
}
