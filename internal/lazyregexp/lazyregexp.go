// Package lazyregexp compiles regular expressions when they are first used: a program that serves a request at its start, as an
// instance does, should not compile those of its other commands first (50 to 500 µs each, more where counts are bounded).
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that compiles expr at its first call and returns the same value ever after. An expr that does not
// compile panics there. It is safe for many goroutines.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
