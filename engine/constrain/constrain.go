// Package constrain computes which tokens may come next, so that a text has a given form: a
// JSON value, a value of a JSON schema, a match of a regular expression, a
// sentence of a grammar. It knows the vocabulary as bytes and no model.
//
// The life of a constraint:
//
//  1. A schema, a pattern or a grammar is read into a [Form], a tree of texts,
//     classes of characters, sequences, choices, repetitions and rules. The work
//     and memory of this step and the next come out of one [Budget].
//  2. [Compile] makes it a program for one [Vocabulary]: a nondeterministic automaton over
//     bytes for each rule, whose edges may call other rules; its states are called places. Iterations of
//     a long repetition are counted, not written out. Places from
//     which no text can be completed are removed, so no choice leads into a dead end.
//  3. A [Matcher] is at a state of the pushdown automaton that the rules make: a set
//     of places, each with the stack of places to return to. States are computed when
//     a text reaches them, and are shared by all texts of the grammar.
//  4. The mask of a state comes from one walk over a trie of the vocabulary. What
//     a token does inside the innermost rule does not depend on the stack, so
//     that part is cached for all stacks; only tokens that leave the rule are
//     followed with the stack. Where any plain text may follow, as in a JSON string, the tokens
//     that are plain text are known beforehand by their length, and the walk is over
//     the others alone. Masks are cached with their states.
//
// What it guarantees: every text that ends with an end token has the form and is
// valid UTF-8, and a mask is never empty: a text that would be in too many places
// at once is refused at its beginning, or fails when it gets there. What it refuses: forms
// that never end, left recursion, keywords of JSON schema that it cannot enforce
// (the error names the keyword), and forms that are too large; see the limits.
package constrain

import "errors"

// ErrForbidden is returned by [Matcher.Accept] for a token that does not fit.
var ErrForbidden = errors.New("the token does not fit the grammar")

// A Grammar is a form that texts can have, compiled for one vocabulary. It is
// immutable and safe for many goroutines; many requests may share one.
type Grammar interface {
	// Matcher begins a text. It is cheap: what the matchers of a grammar learn about masks they share.
	Matcher() Matcher
}

// A Matcher follows one text token by token. It belongs to one goroutine.
type Matcher interface {
	// Mask sets bit t%64 of dst[t/64] for every token t that may come next and
	// clears all others. dst has a bit for every token: (vocabulary+63)/64 words;
	// longer is fine. There is always at least one token: an end token is allowed
	// when, and only when, the text so far is complete.
	Mask(dst []uint64)
	// Accept goes on by a token. It fails with [ErrForbidden], and changes nothing,
	// if no text of the form goes on with it. It takes every token of the mask, or
	// fails with a [*FormError] where the form is too ambiguous to go on from there.
	Accept(token int32) error
	// Done reports that an end token was accepted, or that nothing but an end can follow.
	Done() bool
}

// Words is the number of uint64 that a mask for vocab tokens needs.
func Words(vocab int) int { return (vocab + 63) / 64 }

// FormError says what about a form can't be kept. It is the client's mistake, or asks for more than this package does.
type FormError struct{ Message string }

// Error implements error.
func (e *FormError) Error() string { return e.Message }
