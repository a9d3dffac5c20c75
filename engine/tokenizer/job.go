package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// ErrTooMany is returned by [Tokenizer.EncodeWithin].
var ErrTooMany = errors.New("the text has more tokens than fit")

// EncodeWithin is [Tokenizer.Encode] for untrusted text. It fails with ErrTooMany beyond most tokens, in about the time
// for most, and with ctx's cause. It blocks while other texts use the memory for encoding, which is bounded for texts
// up to MaxText; see [Tokenizer.Bytes].
func (t *Tokenizer) EncodeWithin(ctx context.Context, text string, parseSpecial bool, most int) (ids []int32, err error) {
	if t.Fewest(text) > most {
		return nil, ErrTooMany
	}
	leave, err := t.limit.enter(ctx, t.Bytes(text))
	if err != nil {
		return nil, err
	}
	defer leave()
	j := &job{ctx: ctx, most: most}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stopped:
			ids, err = nil, p.cause
		default:
			panic(p)
		}
	}()
	t.encode(j, text, parseSpecial)
	return j.ids, nil
}

// Bytes returns the most bytes of a text after normalization.
func (t *Tokenizer) Bytes(text string) int {
	if t.nfc && !norm.NFC.IsNormalString(text) {
		return composed * len(text)
	}
	return len(text)
}

// Fewest returns a lower bound of a text's tokens.
func (t *Tokenizer) Fewest(text string) int {
	if t.longest == 0 {
		return 0
	}
	bytes := len(text) - len(guardMark)*strings.Count(text, guardMark)
	if t.nfc { // composing may shorten it
		bytes /= composed
	}
	return bytes / t.longest
}

// A job ends early with a panic of stopped, since splitters can't return errors.
type job struct {
	ctx  context.Context // of one call of Encode
	most int
	ids  []int32
	work int
}

type stopped struct{ cause error }

// askEvery is in bytes or merges between checks of the context.
const askEvery = 1 << 16

func (j *job) step(n int) {
	if j.work += n; j.work < askEvery {
		return
	}
	j.work = 0
	if len(j.ids) > j.most {
		panic(stopped{ErrTooMany})
	}
	if j.ctx.Err() != nil {
		panic(stopped{fmt.Errorf("encode a text: %w", context.Cause(j.ctx))})
	}
}

// piece goes before merging bytes that become tokens of at most longest bytes.
func (j *job) piece(bytes, longest int) {
	if longest > 0 && bytes/longest > j.most-len(j.ids) || len(j.ids) > j.most {
		panic(stopped{ErrTooMany})
	}
	j.step(bytes)
}

// grow makes room for a chain's ids.
func (j *job) grow(c *chain) {
	n, parts := int32(len(c.parts)), 0
	if n < manyPlaces {
		return
	}
	for at := int32(0); at < n; at = c.next(at) {
		parts++
	}
	if have := len(j.ids); cap(j.ids)-have < parts {
		j.ids = append(make([]int32, 0, have+max(parts, have/4)), j.ids...)
	}
}
