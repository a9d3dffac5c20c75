package tokenizer

import (
	"context"
	"fmt"
	"runtime"
)

// textBytes is the most memory that a text takes while it is made tokens, for each byte that it has in Unicode's form NFC: its
// chain, its ids, those ids once more while they move to where there is more room, and copies of the text.
const textBytes = placeBytes + 4 + 2 + 3

// composed is how many times its length a text may have in form NFC (UAX #15, section 9).
const composed = 3

// lanes bound the texts of a size that are made tokens at once, so that all of them together take no more than 450 MiB; who
// comes later waits for its turn. A text waits for no larger one.
var lanes = [...]struct{ bytes, texts int }{{64 << 10, 32}, {512 << 10, 4}, {4 << 20, 1}, {MaxText, 1}}

// MaxText is how many bytes a text has at most, as Bytes counts, for which the bound on memory holds: twice what fills a
// context of two million tokens.
const MaxText = 16 << 20

// room is the lanes of one Tokenizer.
type room [len(lanes)]chan struct{} // sent to by who enters, received from by who leaves; as large as texts may be in

func newRoom() *room {
	r := &room{}
	for i := range r {
		r[i] = make(chan struct{}, lanes[i].texts)
	}
	return r
}

// enter waits until a text of so many bytes may be made tokens. Who enters calls leave.
func (r *room) enter(ctx context.Context, bytes int) (leave func(), err error) {
	i := 0
	for i < len(lanes)-1 && bytes > lanes[i].bytes {
		i++
	}
	select {
	case r[i] <- struct{}{}:
		if i == len(lanes)-1 {
			runtime.GC() // else what the ones before left stays until the heap is twice as large
		}
		return func() { <-r[i] }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to make a text tokens: %w", context.Cause(ctx))
	}
}
