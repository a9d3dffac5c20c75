// Package constrain computes which tokens may come next, so that a text has a given form: JSON, a JSON schema, a
// regular expression, or a grammar. It knows the vocabulary as bytes, and no model.
//
//  1. A schema, a pattern or a grammar is read into a [Form]. This step and the next are charged to one [Budget].
//  2. [Compile] makes a program for one [Vocabulary]: for each rule a nondeterministic automaton over bytes, whose
//     arcs may call other rules; its states are called places. Long repetitions, and characters under a limit of
//     length, are counted, not written out. Places that can't be completed are removed.
//  3. A [Matcher] is at a state of the pushdown automaton: a set of places, each with a stack of return places.
//     States are computed when a text reaches them, and shared by all texts of the grammar.
//  4. A state's mask is computed by one walk over a trie of the vocabulary, and cached. What tokens do inside the
//     innermost rule does not depend on the stack and is cached for all stacks. Where any plain text may follow, the
//     plain-text tokens are precomputed by length.
//
// Every text that ends with an end token has the form and is valid UTF-8, and a mask is never empty. A text in too
// many places at once is rejected. So are forms that never end, left recursion, and JSON schema keywords that can't
// be enforced.
package constrain

import "errors"

// ErrForbidden is returned by [Matcher.Accept] for a token that does not fit.
var ErrForbidden = errors.New("the token does not fit the grammar")

// A Grammar is a form compiled for one vocabulary. It is immutable and safe for many goroutines.
type Grammar interface {
	// Matcher returns a matcher for a new text. It is cheap: matchers share cached masks.
	Matcher() Matcher
}

// A Matcher follows one text token by token. It belongs to one goroutine.
type Matcher interface {
	// Mask sets bit t%64 of dst[t/64] for every token t that may come next and clears all others. dst has at least
	// [Words](vocabulary) words. An end token is allowed if and only if the text so far is complete.
	Mask(dst []uint64)
	// Accept appends a token. It fails with [ErrForbidden], and changes nothing, if the token does not fit; with a
	// [*FormError] if the form is too ambiguous to continue there.
	Accept(token int32) error
	// Done reports whether an end token was accepted, or only an end token can follow.
	Done() bool
}

// Words returns the number of uint64 in a mask for vocab tokens.
func Words(vocab int) int { return (vocab + 63) / 64 }

// FormError describes a form that can't be enforced: the client's mistake, or not supported.
type FormError struct{ Message string }

func (e *FormError) Error() string { return e.Message }
