// Package constrain computes which tokens may come next, so that a text has a given form: JSON, a JSON schema, a
// regular expression, or a grammar.
//
//  1. A schema, a pattern or a grammar is read into a [Form].
//  2. [Compile] makes, for one [Vocabulary], a nondeterministic automaton over bytes of each rule, whose arcs may
//     call other rules; its states are called places. Long repetitions are counted, not written out. Places that
//     can't be completed are removed.
//  3. A [Matcher] is at a state of the pushdown automaton: a set of places, each with a stack of return places.
//     States are computed when a text reaches them, and shared by all texts.
//  4. A state's mask is computed by one walk over a trie of the vocabulary, and cached. What tokens do inside the
//     innermost rule is cached for all stacks. Where any plain text may follow, its tokens are precomputed by
//     length.
//
// Every text that ends with an end token has the form and is valid UTF-8, and a mask is never empty. Forms that are
// too ambiguous, never end, are left-recursive or can't be enforced are rejected.
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
