// Package constrain says which tokens may follow, so that a text has a form: a
// JSON value, a value of a JSON schema, a match of a regular expression, a
// sentence of a grammar. It knows the vocabulary as bytes and never sees a model.
package constrain

import "errors"

// ErrForbidden is returned by [Matcher.Accept] for a token that the mask does not hold.
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
	// if the token was not in the mask.
	Accept(token int32) error
	// Done reports that an end token was accepted, or that nothing but an end can follow.
	Done() bool
}

// Words is the number of uint64 that a mask for vocab tokens needs.
func Words(vocab int) int { return (vocab + 63) / 64 }

// Allows reports whether a mask holds token.
func Allows(mask []uint64, token int32) bool {
	i := int(token) >> 6
	return token >= 0 && i < len(mask) && mask[i]>>(uint(token)&63)&1 != 0
}
