// Package constrain computes which tokens may come next, so that a text has a given form. A form is a JSON value, a
// value of a JSON schema, a match of a regular expression, or a sentence of a grammar. The package knows the
// vocabulary as bytes, and no model.
//
// The life of a constraint:
//
//  1. A schema, a pattern or a grammar is read into a [Form]: a tree of texts, character classes, sequences, choices,
//     repetitions and rules. The work and memory of this step and the next are charged to one [Budget].
//  2. [Compile] makes a program for one [Vocabulary]: for each rule a nondeterministic automaton over bytes, whose
//     edges may call other rules; its states are called places. Iterations of a long repetition, and the characters of a
//     pattern beside a limit of length, are counted, not written out. Places from which no text can be completed are removed, so no choice is a dead end.
//  3. A [Matcher] is at a state of the pushdown automaton of the rules: a set of places, each with a stack of return
//     places. States are computed when a text reaches them, and shared by all texts of the grammar.
//  4. The mask of a state is computed by one walk over a trie of the vocabulary. The effect of a token inside the
//     innermost rule does not depend on the stack, so that part is cached for all stacks; only tokens that leave the
//     rule are followed with the stack. Where any plain text may follow, as in a JSON string, the plain-text tokens
//     are precomputed by length, and only the others are walked. Masks are cached with their states.
//
// Guarantees: every text that ends with an end token has the form and is valid UTF-8, and a mask is never empty. A
// text that would be in too many places at once is rejected at its beginning, or fails when it gets there. Forms that
// never end, left recursion, and JSON schema keywords that can't be enforced are rejected (the error names the
// keyword), and so are forms that exceed the limits.
package constrain

import "errors"

// ErrForbidden is returned by [Matcher.Accept] for a token that does not fit.
var ErrForbidden = errors.New("the token does not fit the grammar")

// A Grammar is a form compiled for one vocabulary. It is immutable and safe for many goroutines; many requests may
// share one.
type Grammar interface {
	// Matcher returns a matcher for a new text. It is cheap: the matchers of a grammar share cached masks.
	Matcher() Matcher
}

// A Matcher follows one text token by token. It belongs to one goroutine.
type Matcher interface {
	// Mask sets bit t%64 of dst[t/64] for every token t that may come next and clears all others. dst has at least
	// [Words](vocabulary) words. At least one token is allowed. An end token is allowed if and only if the text so far
	// is complete.
	Mask(dst []uint64)
	// Accept appends a token. It fails with [ErrForbidden], and changes nothing, if the token does not fit. It accepts
	// every token of the mask, or fails with a [*FormError] if the form is too ambiguous to continue there.
	Accept(token int32) error
	// Done reports whether an end token was accepted, or only an end token can follow.
	Done() bool
}

// Words returns the number of uint64 in a mask for vocab tokens.
func Words(vocab int) int { return (vocab + 63) / 64 }

// FormError describes a form that can't be enforced: it is the client's mistake, or not supported.
type FormError struct{ Message string }

// Error implements error.
func (e *FormError) Error() string { return e.Message }
