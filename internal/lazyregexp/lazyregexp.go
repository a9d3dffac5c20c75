// Package lazyregexp compiles regular expressions on first use: an instance that serves right after its start should not
// first compile those of other commands.
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
