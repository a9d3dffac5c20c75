// Package catalog finds the models that lie on this machine already, and declares functions for them: those that Ollama has pulled,
// in its own store, and the GGUF files below a folder. It reads only. Nothing is copied, moved or fetched, and what is found can be
// served where it lies.
//
// Of each model it says what serves it, and why not what one would expect: our engine where it can, else Ollama, where that is
// installed. What can't be read is left out, each with its reason; one bad file hides no other.
//
// It refuses to follow a manifest out of its store (a digest is a name of a file there, and nothing else), and to read more than a
// bounded part of what is no model.
//
// All functions may be called by many goroutines. They block for as long as the disk takes.
package catalog

import (
	"fmt"
	"strings"
	"unicode"
)

// Skipped is something that is no function, and why.
type Skipped struct {
	// What is a path or a model's name, printable.
	What string
	Why  error
}

// String is a line for people.
func (s Skipped) String() string { return fmt.Sprintf("%s is left out: %v", s.What, s.Why) }

// printable is a name as it is told to people: what a terminal would obey is left out.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '�'
		}
		return r
	}, name)
}
