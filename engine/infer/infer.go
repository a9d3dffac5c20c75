// Package infer defines the contract between a worker and a forward pass that computes logits. Package cpu implements
// it for CPUs, [Simulated] simulates a device, and infertest has a fake. All pass its suite, infertest.Run.
//
// An Inferencer is stateless about requests. It owns the model's weights and the memory of the KV cache, as numbered
// blocks of a fixed number of positions. The caller (package block) decides which sequence uses which block: each Item
// brings its own list.
//
// The life of a step:
//
//  1. The scheduler chooses sequences and gives each one's new tokens as an Item:
//     a chunk of a prompt, or the one token sampled last. Both kinds mix in a Batch.
//  2. Forward copies whole blocks where sequences diverge (Batch.Copies). Then it
//     computes keys and values of the new tokens, stores them in the Item's blocks, attends
//     over all earlier positions of the same Item, and returns what each Item wants.
//  3. The caller samples before it calls Forward again: the Result's memory is reused.
//
// A sequence of a model that is Stateful also has a state, which its tokens change in place and which the caller numbers. It
// begins at position 0, and goes on only where its last step ended: other positions are an error, and so are all after a step
// that failed, and after a sleep.
//
// Sleep frees memory while the process lives, and Wake allocates it again. Sleep discards the KV cache: the caller
// drains or recomputes its sequences. A [Keeper] can keep some of the blocks. Adapters stay loaded.
package infer

import (
	"context"
	"errors"
	"fmt"

	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

// Want is the output that an Item's caller needs, besides the filled cache.
type Want uint8

// Values of Want.
const (
	None   Want = iota // nothing: a chunk of a prompt, but not the last
	Last               // logits after the last token
	All                // logits after every token
	Hidden             // the final, normed hidden state of every token, for embeddings
	Rank               // the score of a pair of texts
)

// Item is one sequence's share of a step.
type Item struct {
	Tokens  []int32 // new tokens, at least one; not kept after Forward returns
	Pos     int     // position of Tokens[0] in the sequence; earlier positions are in the cache
	Blocks  []int32 // cache blocks of positions 0…, in order; must cover Pos+len(Tokens); not kept
	Adapter int32   // ID of the adapter for all positions of the sequence; 0: none
	State   int32   // number of the sequence's state, of a model that is Stateful: no other item has it; a lower one takes no more memory
	Want    Want
	Images  []Image // of the whole sequence, in order; Tokens must not end within one
}

// Copy copies a whole cache block.
type Copy struct{ From, To int32 }

// Batch is the work of one step. Copies are done first, in order. Items are independent sequences; two Items must not
// write to the same block.
type Batch struct {
	Items  []Item
	Copies []Copy
}

// Result is the output of a step, with one entry per Item in each list. It is valid until the next call of Forward,
// Sleep or Close.
type Result struct {
	Logits [][]float32 // [n, Vocab] with n 1 for Last, len(Tokens) for All; nil for others
	Hidden [][]float32 // [len(Tokens), Dim] for Hidden, [1] for Rank; nil for others
}

// Errors that callers branch on.
var (
	ErrAsleep = errors.New("the model is asleep: wake it first")
	ErrClosed = errors.New("the model is closed")
	// ErrNoAdapter is wrapped by errors of Forward and UnloadAdapter for an unknown ID.
	ErrNoAdapter = errors.New("the adapter is not loaded")
)

// Inferencer computes logits. All methods are safe for many goroutines; Forward, Sleep, Wake, LoadAdapter,
// UnloadAdapter and Close exclude one another and wait for their turn. Results are bit-exact: they do not depend on
// how tokens are cut into chunks, on the rest of the batch, or on the number of threads.
type Inferencer interface {
	// Forward runs one step and returns what each Item wants. When ctx ends it returns early with ctx's cause. Then
	// the blocks of the batch's Items hold garbage from Item.Pos on, earlier positions are intact, and the same batch
	// can be run again, but by a Stateful model. An invalid batch fails before anything is computed. Errors: ErrAsleep, ErrClosed.
	Forward(ctx context.Context, b *Batch) (Result, error)

	// LoadAdapter makes an adapter usable by Items, under an unused ID above 0. The adapter must not change
	// afterwards. The error names what does not fit the model. It works in every state but closed. Errors: ErrClosed.
	LoadAdapter(id int32, a *lora.Adapter) error

	// UnloadAdapter removes an adapter. Errors: ErrNoAdapter, ErrClosed.
	UnloadAdapter(id int32) error

	// Config returns the model's shape, in every state. It does not change. Context may be configured smaller than the
	// file's.
	Config() model.Config

	// Blocks returns the cache's geometry: count blocks, numbered from 0, of size positions.
	Blocks() (count, size int)

	// MemoryBytes returns the memory that the model takes now: mapped weights, cache blocks written since the last
	// Wake, and working space.
	MemoryBytes() int64

	// Sleep frees memory. Level 1 drops the cache and the weights' pages and keeps the model file mapped; level 2
	// closes the file too. Sleep can deepen the level; at the same or a lower level it does nothing. Errors:
	// ErrClosed.
	Sleep(level int) error

	// Wake makes Forward possible again, with an empty cache. If awake it does nothing. After level 2 it fails if the
	// file is gone or holds another model. Errors: ErrClosed.
	Wake(ctx context.Context) error

	// Close frees everything and waits for all goroutines. It may be called twice.
	Close() error
}

// Keeper is an Inferencer whose cache can survive a sleep.
type Keeper interface {
	// SleepKeeping sleeps at level 1, but keeps the contents of these blocks in memory until the next Wake that
	// succeeds. A failed Wake and a Sleep at level 2 drop them. If asleep it does nothing. Errors: ErrClosed.
	SleepKeeping(blocks []int32) error

	// BlockBytes returns the size of a block's contents.
	BlockBytes() int64

	// Export copies the contents of a computed block to dst, which has BlockBytes bytes. It works awake, and for
	// blocks kept by a sleep. Errors: ErrAsleep, ErrClosed.
	Export(block int32, dst []byte) error

	// Import sets a block's contents to src, which has BlockBytes bytes. src must be exported by an Inferencer of the
	// same model and geometry. Errors: ErrAsleep, ErrClosed.
	Import(block int32, src []byte) error
}

// Check returns an error if a batch does not fit a model of c's shape and a cache of count blocks of size positions.
// The error names the item and the limit. Inferencers call it first; they check adapters themselves.
func (b *Batch) Check(c model.Config, count, size int) error {
	for i, p := range b.Copies {
		for _, x := range []int32{p.From, p.To} {
			if x < 0 || int(x) >= count {
				return fmt.Errorf("batch copy %d: block %d is outside the cache of %d blocks", i, x, count)
			}
		}
	}
	for i := range b.Items {
		if err := b.Items[i].check(c, count, size); err != nil {
			return fmt.Errorf("batch item %d: %w", i, err)
		}
	}
	return nil
}

func (it *Item) check(c model.Config, count, size int) error {
	n := len(it.Tokens)
	switch {
	case n == 0:
		return errors.New("no tokens: want at least one")
	case it.Pos < 0:
		return fmt.Errorf("position %d is negative", it.Pos)
	case it.Pos > c.Context-n:
		return fmt.Errorf("%d tokens from position %d reach beyond the context of %d", n, it.Pos, c.Context)
	case (it.Pos+n+size-1)/size > len(it.Blocks):
		return fmt.Errorf("%d positions need %d blocks of %d, got %d", it.Pos+n, (it.Pos+n+size-1)/size, size, len(it.Blocks))
	case it.Want > Rank:
		return fmt.Errorf("want %d is unknown", it.Want)
	case c.Encoder && it.Pos > 0:
		return fmt.Errorf("position %d: an encoder computes a sequence as a whole", it.Pos)
	case it.Want == Rank && !c.Ranks, it.Want == Hidden && c.Ranks, c.Encoder && (it.Want == Last || it.Want == All):
		return fmt.Errorf("want %d is not what the model makes", it.Want)
	}
	if err := it.checkImages(c); err != nil {
		return err
	}
	for _, t := range it.Tokens {
		if t < 0 || int(t) >= c.Vocab {
			return fmt.Errorf("token %d is outside the vocabulary of %d", t, c.Vocab)
		}
	}
	for _, b := range it.Blocks[:(it.Pos+n+size-1)/size] {
		if b < 0 || int(b) >= count {
			return fmt.Errorf("block %d is outside the cache of %d blocks", b, count)
		}
	}
	return nil
}
