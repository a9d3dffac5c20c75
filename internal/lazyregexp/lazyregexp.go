// Package lazyregexp compiles regular expressions on first use. A program that serves a request right after its
// start, as an instance does, should not first compile those of its other commands (50 to 500 µs each, more with
// bounded counts).
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that compiles expr at its first call and always returns the same value. It panics if expr
// does not compile. It is safe for concurrent use.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
