// Package infer defines the contract between a worker and a forward pass that computes logits. Package cpu implements
// it, [Simulated] simulates a device, and infertest has a fake and a suite.
//
// An Inferencer is stateless about requests. It owns the weights and the KV cache, as numbered blocks. The caller
// (package block) decides which sequence uses which block.
//
//  1. The scheduler gives each sequence's new tokens, of a prompt or the one sampled last, as an Item.
//  2. Forward copies whole blocks where sequences diverge (Batch.Copies). Then it computes keys and values of the
//     new tokens, stores them in the Item's blocks, attends over all earlier positions of the Item, and returns what
//     each Item wants.
//  3. The caller samples before it calls Forward again: the Result's memory is reused.
//
// A sequence of a model that is Stateful also has a state, which its tokens change in place. It begins at position 0,
// and goes on only where its last step ended, and not after a failed step or a sleep.
package infer

import (
	"context"
	"errors"
	"fmt"

	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

// Want is the output that an Item's caller needs.
type Want uint8

const (
	None   Want = iota // nothing: a chunk of a prompt, but not the last
	Last               // logits after the last token
	All                // logits after every token
	Hidden             // the final, normed hidden state of every token, for embeddings
	Rank               // the score of a pair of texts
)

// Item is one sequence's share of a step. Forward keeps no slice of it.
type Item struct {
	Tokens  []int32 // new ones, at least one
	Pos     int     // position of Tokens[0]; earlier positions are in the cache
	Blocks  []int32 // of positions 0…, in order; must cover Pos+len(Tokens)
	Adapter int32   // ID for all positions of the sequence; 0: none
	State   int32   // of a model that is Stateful: a number that no other item has; low ones take less memory
	Want    Want
	Images  []Image // of the whole sequence, in order; Tokens must not end within one
}

// Copy copies a whole cache block.
type Copy struct{ From, To int32 }

// Batch is the work of one step. Copies are done first, in order. Two Items must not write to the same block.
type Batch struct {
	Items  []Item
	Copies []Copy
}

// Result is the output of a step by Item. It is valid until the next call of Forward, Sleep or Close.
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
// UnloadAdapter and Close exclude one another. Results do not depend, to the bit, on chunks, the rest of the batch,
// or threads. After Close methods fail with ErrClosed.
type Inferencer interface {
	// Forward runs one step. When ctx ends it returns early with ctx's cause: then the Items' blocks hold garbage
	// from Item.Pos on, and the same batch can be run again, but by a Stateful model. An invalid batch fails before
	// anything is computed. Asleep it fails with ErrAsleep.
	Forward(ctx context.Context, b *Batch) (Result, error)

	// LoadAdapter makes an adapter, which must not change afterwards, usable by Items, under an unused ID above 0. It
	// works asleep too.
	LoadAdapter(id int32, a *lora.Adapter) error

	// UnloadAdapter fails with ErrNoAdapter for an unknown ID.
	UnloadAdapter(id int32) error

	// Config returns the model's shape, in every state. It does not change.
	Config() model.Config

	// Blocks returns the cache's geometry: count blocks of size positions.
	Blocks() (count, size int)

	// MemoryBytes returns the memory that the model takes now: mapped weights, cache blocks written since the last
	// Wake, and working space.
	MemoryBytes() int64

	// Sleep frees memory. Level 1 drops the cache and the weights' pages and keeps the model file mapped; level 2
	// closes the file too. Sleep can deepen the level; at the same or a lower level it does nothing. Adapters
	// stay loaded.
	Sleep(level int) error

	// Wake makes Forward possible again, with an empty cache. After level 2 it fails if the file is gone or holds
	// another model. Awake it does nothing.
	Wake(ctx context.Context) error

	// Close frees everything and waits for all goroutines. It may be called twice.
	Close() error
}

// Keeper is an Inferencer whose cache can survive a sleep.
type Keeper interface {
	// SleepKeeping sleeps at level 1, but keeps these blocks until the next Wake that succeeds. A failed Wake and a
	// Sleep at level 2 drop them. If asleep it does nothing.
	SleepKeeping(blocks []int32) error

	BlockBytes() int64

	// Export copies a computed block to dst, which has BlockBytes bytes. It works awake, and for blocks kept by a
	// sleep; else it fails with ErrAsleep.
	Export(block int32, dst []byte) error

	// Import sets a block to src, which was exported by an Inferencer of the same model and geometry. Asleep it fails
	// with ErrAsleep.
	Import(block int32, src []byte) error
}

// Check returns an error if a batch does not fit a model of c's shape and a cache of count blocks of size positions.
// Inferencers call it first; they check adapters themselves.
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
