package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// ErrTooMany says that a text has more tokens than were asked for.
var ErrTooMany = errors.New("the text has more tokens than fit")

// EncodeWithin is [Tokenizer.Encode] for the text of a stranger. Where the text has more than most tokens it fails with
// ErrTooMany, in about the time that most tokens take and not in that of the whole text; where ctx ends before, with its
// cause. Of the texts whose words take much memory (many bytes without a place to cut) a Tokenizer merges one at a time.
func (t *Tokenizer) EncodeWithin(ctx context.Context, text string, parseSpecial bool, most int) (ids []int32, err error) {
	j := &job{ctx: ctx, most: most, turn: t.turn}
	defer func() {
		j.release()
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

// job is one Encode. What ends it early unwinds with a panic of the type stopped: the splitters have no way to say so.
type job struct {
	ctx  context.Context //nolint:containedctx // a job is one call of Encode
	most int
	ids  []int32
	work int           // since the context was asked
	turn chan struct{} // of the texts that take much memory; held says whether it is ours
	held bool
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
		panic(stopped{fmt.Errorf("make a text tokens: %w", context.Cause(j.ctx))})
	}
}

// large is how many bytes in one piece take so much memory that one of them at a time is enough: a byte takes up to 64.
const large = 1 << 18

// piece is called before bytes are merged that become tokens of at most longest bytes each.
func (j *job) piece(bytes, longest int) {
	if longest > 0 && bytes/longest > j.most-len(j.ids) || len(j.ids) > j.most {
		panic(stopped{ErrTooMany})
	}
	j.step(bytes)
	if bytes < large || j.turn == nil {
		return
	}
	select {
	case j.turn <- struct{}{}:
		j.held = true
	case <-j.ctx.Done():
		panic(stopped{fmt.Errorf("make a text tokens: %w", context.Cause(j.ctx))})
	}
}

// release ends what piece began.
func (j *job) release() {
	if j.held {
		j.held = false
		<-j.turn
	}
}
