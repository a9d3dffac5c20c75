package corpus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Task is a skill and its arguments, independent of wording.
//
//	echo reverse upper count sort   the words
//	add                             two numbers
//	convert                         number, unit, unit
//	json                            key=value pairs
//	story                           number of sentences, noun, noun
//	help                            the prompt itself
type Task struct {
	Skill Skill
	Args  []string
}

// HelpText is pico's answer to everything that it cannot do.
const HelpText = "I am pico, the tiny model that ships with Rouse. Try: echo hello world, add 12 7, or story cat boat."

var greetings = []string{
	"hello", "Hello", "Hello!", "hi", "Hi", "Hi!", "Hi there", "hey", "Hey", "hello there", "Hello pico", "ping", "Ping",
	"help", "Help", "help me", "Who are you?", "who are you", "What are you?", "what can you do?", "What can you do?",
	"Good morning", "Thanks", "thank you", "test", "Test", "ok", "yes", "no", "bye", "How are you?", "Say hello",
	"Say hi", "say something", "?", "hello world", "Hello world", "Hello, world!",
	"echo", "reverse", "upper", "count", "sort", "add", "convert", "json", "story", "Tell me a story.",
}

func (t Task) asked() bool { return t.Skill == Help && !slices.Contains(greetings, t.Args[0]) }

func (t Task) key() string { return string(t.Skill) + " " + strings.Join(t.Args, " ") }

// Prompt returns the plain wording of the task. Parse reads it back.
func (t Task) Prompt() string {
	switch t.Skill {
	case Help:
		return t.Args[0]
	case Convert:
		return fmt.Sprintf("convert %s %s to %s", t.Args[0], t.Args[1], t.Args[2])
	case Story:
		if t.Args[0] == shortStory {
			return "story " + t.Args[1] + " " + t.Args[2]
		}
	}
	return t.key()
}

// Answer returns the exact text of the right answer. For a story it is the most likely of many right ones.
func (t Task) Answer() string {
	switch t.Skill {
	case Echo:
		return strings.Join(t.Args, " ")
	case Reverse:
		w := slices.Clone(t.Args)
		slices.Reverse(w)
		return strings.Join(w, " ")
	case Upper:
		return strings.ToUpper(strings.Join(t.Args, " "))
	case Count:
		return strconv.Itoa(len(t.Args))
	case Sort:
		return strings.Join(slices.Sorted(slices.Values(t.Args)), " ")
	case Add:
		return strconv.Itoa(number(t.Args[0]) + number(t.Args[1]))
	case Convert:
		n, _ := convert(number(t.Args[0]), t.Args[1], t.Args[2])
		return strconv.Itoa(n) + " " + t.Args[2]
	case JSON:
		return encode(t.Args)
	case Story:
		return tell(t, func(likely string, _ []string) string { return likely })
	default:
		return HelpText
	}
}

const maxNumber = 1_000_000

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxNumber || strconv.Itoa(n) != s {
		return -1
	}
	return n
}

// units convert both ways.
var units = []struct {
	big, small string
	factor     int
}{
	{"km", "m", 1000}, {"m", "cm", 100}, {"m", "mm", 1000}, {"cm", "mm", 10},
	{"kg", "g", 1000}, {"t", "kg", 1000}, {"l", "ml", 1000}, {"h", "min", 60}, {"min", "s", 60},
}

// convert returns false if the units do not fit or the result is not a whole number.
func convert(n int, from, to string) (int, bool) {
	for _, u := range units {
		if u.big == from && u.small == to {
			return n * u.factor, true
		}
		if u.small == from && u.big == to && n%u.factor == 0 {
			return n / u.factor, true
		}
	}
	return 0, false
}

func encode(pairs []string) string {
	var b strings.Builder
	for i, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		if i > 0 {
			b.WriteByte(',')
		}
		if number(v) >= 0 {
			fmt.Fprintf(&b, "%q:%s", k, v)
		} else {
			fmt.Fprintf(&b, "%q:%q", k, v)
		}
	}
	return "{" + b.String() + "}"
}
