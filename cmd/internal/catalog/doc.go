// Package catalog finds the models on this machine and declares functions for them: those that Ollama has pulled, in its own store,
// the GGUF files below a folder, and llama-swap's configuration. It only reads: nothing is copied, moved or fetched, and models are served in place.
//
// For each model it chooses what serves it, and explains unexpected choices: our engine if possible, else Ollama, if that is
// installed. Unreadable models are skipped, each with its reason; one bad file hides no other.
//
// It never follows a manifest out of its store (a digest can only name a file there), and reads only a bounded part of files that
// are no models.
//
// All functions are safe for concurrent use. They block for as long as the disk takes.
package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/rouse-dev/rouse/api"
)

// Skipped is something that is not served, and why.
type Skipped struct {
	// What is a path or a model's name, printable.
	What string
	Why  error
}

// String returns a line for display.
func (s Skipped) String() string { return fmt.Sprintf("%s is left out: %v", s.What, s.Why) }

// printable replaces characters of a name that a terminal would interpret.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '�'
		}
		return r
	}, name)
}

// found collects functions, the first of each name.
type found struct {
	functions []api.Function
	what      []string // of each
	left      []Skipped
}

func (c *found) skip(what string, why error) { c.left = append(c.left, Skipped{what, why}) }

// add adds what was found, or the reason why it is none. An alias stays with its first function.
func (c *found) add(what string, f api.Function, err error) {
	for i, other := range c.functions {
		if f.Name == other.Name && err == nil {
			err = fmt.Errorf("%s has taken the name %s: rename one of them", c.what[i], f.Name.Short())
		}
		f.Aliases = slices.DeleteFunc(f.Aliases, func(a api.ModelName) bool {
			taken := slices.Contains(other.Names(), a)
			if taken {
				c.skip(what+" as "+printable(string(a)), fmt.Errorf("%s has that name", c.what[i]))
			}
			return taken
		})
	}
	if err != nil {
		c.skip(what, err)
		return
	}
	c.functions, c.what = append(c.functions, f), append(c.what, what)
}
