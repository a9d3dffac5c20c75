// Package catalog finds the models on this machine and declares functions for them: those that Ollama has pulled, the
// GGUF files below a folder, and llama-swap's configuration. It only reads: models are served in place.
//
// For each model it chooses what serves it: our engine if possible, else Ollama, if installed. Unreadable models are
// skipped, each with its reason.
//
// It never follows a manifest out of its store, and reads only a bounded part of files that are no models. All
// functions are safe for concurrent use.
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
	What string // printable
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

type found struct {
	functions []api.Function
	what      []string // of each function
	left      []Skipped
}

func (c *found) skip(what string, why error) { c.left = append(c.left, Skipped{what, why}) }

// add adds what was found, or why not. An alias stays with its first function.
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
