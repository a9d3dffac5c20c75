package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// ErrTooMany says that a text has more tokens than were asked for.
var ErrTooMany = errors.New("the text has more tokens than fit")

// EncodeWithin is [Tokenizer.Encode] for untrusted text. Where the text has more than most tokens it fails with
// ErrTooMany, in about the time that most tokens take and not in that of the whole text; where ctx ends before, with its
// cause. It waits while other texts of about the size take as much memory as all may: of texts up to MaxText, see [Tokenizer.Bytes].
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

// Bytes is how many bytes a text may have once it is normalized as the vocabulary wants it.
func (t *Tokenizer) Bytes(text string) int {
	if t.nfc && !norm.NFC.IsNormalString(text) {
		return composed * len(text)
	}
	return len(text)
}

// Fewest is a number of tokens that a text has at least, found without making it tokens.
func (t *Tokenizer) Fewest(text string) int {
	if t.longest == 0 {
		return 0
	}
	bytes := len(text) - len(guardMark)*strings.Count(text, guardMark)
	if t.nfc { // what is not composed may become shorter
		bytes /= composed
	}
	return bytes / t.longest
}

// job is one Encode. What ends it early unwinds with a panic of the type stopped: the splitters have no way to say so.
type job struct {
	ctx  context.Context // a job is one call of Encode
	most int
	ids  []int32
	work int // since the context was asked
}

// stopped is what a job that ends early panics with.
type stopped struct{ cause error }

// unbounded is the job of Encode.
func unbounded() *job { return &job{ctx: context.Background(), most: math.MaxInt} }

// askEvery is how much work, in bytes or merges, passes between two looks at the context.
const askEvery = 1 << 16

// step counts n of work.
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

// piece is called before bytes are merged that become tokens of at most longest bytes each.
func (j *job) piece(bytes, longest int) {
	if longest > 0 && bytes/longest > j.most-len(j.ids) || len(j.ids) > j.most {
		panic(stopped{ErrTooMany})
	}
	j.step(bytes)
}

// grow makes room for the ids of a chain: where there are many, no more of it than there will be.
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
