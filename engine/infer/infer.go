// Package infer is the contract of a forward pass: what a worker asks of whatever computes
// logits. Package cpu implements it for processors, package sim simulates a device, and
// infertest has a fake. infersuite is the suite that all of them pass.
//
// An Inferencer is stateless about requests. It owns the model's weights and the memory of
// the key-value cache, which it offers as numbered blocks of a fixed number of
// positions. Which sequence uses which block is the caller's decision (package block): each Item
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
// Sleep gives memory back while the process lives, Wake takes it again. Sleeping
// discards the key-value cache: the caller drains or recomputes its sequences. A [Keeper] can
// keep some of its blocks. Adapters stay loaded.
package infer

import (
	"context"
	"errors"
	"fmt"

	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

// Want is what an Item's caller needs besides the cache being filled.
type Want uint8

// What an Item can want.
const (
	None   Want = iota // nothing: a chunk of a prompt that goes on
	Last               // logits after the last token
	All                // logits after every token
	Hidden             // the final, normed hidden state of every token, for embeddings
)

// Item is one sequence's share of a step.
type Item struct {
	Tokens  []int32 // new tokens, at least one; not kept after Forward returns
	Pos     int     // position of Tokens[0] in the sequence: how many positions are already in the cache
	Blocks  []int32 // cache blocks of positions 0…, in order; must cover Pos+len(Tokens); not kept
	Adapter int32   // id of the adapter that all positions of the sequence are computed with; 0: none
	Want    Want
}

// Copy copies a whole cache block.
type Copy struct{ From, To int32 }

// Batch is what one step computes. Copies are done first, in their order. Items are
// independent sequences; two Items must not write to the same block.
type Batch struct {
	Items  []Item
	Copies []Copy
}

// Result is what a step computed, one entry per Item in each list. It is valid until the
// next call of Forward, Sleep or Close.
type Result struct {
	Logits [][]float32 // [n, Vocab] with n 1 for Last, len(Tokens) for All; nil for others
	Hidden [][]float32 // [len(Tokens), Dim] for Hidden; nil for others
}

// Errors that callers branch on.
var (
	ErrAsleep = errors.New("the model is asleep: wake it first")
	ErrClosed = errors.New("the model is closed")
	// ErrNoAdapter is wrapped by what Forward and UnloadAdapter return for an unknown id.
	ErrNoAdapter = errors.New("the adapter is not loaded")
)

// Inferencer computes logits. All methods are safe for many goroutines; Forward, Sleep,
// Wake, LoadAdapter, UnloadAdapter and Close exclude one another and wait for their turn. Results do not
// depend on how tokens are cut into chunks, on what else is in the batch, or on the
// number of threads, not even in the last bit.
type Inferencer interface {
	// Forward runs one step and returns what each Item wants. When ctx ends it returns early with ctx's cause; the blocks of the batch's Items then
	// hold nothing useful from Item.Pos on, earlier positions are untouched, and the
	// same batch can be run again. A bad batch gives an error before anything is computed.
	// ErrAsleep, ErrClosed.
	Forward(ctx context.Context, b *Batch) (Result, error)

	// LoadAdapter makes an adapter usable by Items under an id above 0 that is not in use.
	// The adapter must not change afterwards. The error says what does not fit the model.
	// It works in every state but closed. ErrClosed.
	LoadAdapter(id int32, a *lora.Adapter) error

	// UnloadAdapter forgets an adapter. ErrNoAdapter, ErrClosed.
	UnloadAdapter(id int32) error

	// Config is the model's shape. It does not change and works in every state. Context may
	// be smaller than the file's, when the Inferencer was told to.
	Config() model.Config

	// Blocks is the cache's geometry: count blocks, numbered from 0, of size positions.
	Blocks() (count, size int)

	// MemoryBytes is how much memory the model takes now: weights that are mapped in,
	// cache blocks written since the last Wake, and working space.
	MemoryBytes() int64

	// Sleep gives memory back. Level 1 drops the cache and the weights' pages and keeps
	// the model file mapped; level 2 lets go of the file too. A deeper level than
	// the current one goes down, the same or a lighter one does nothing. ErrClosed.
	Sleep(level int) error

	// Wake makes Forward possible again, with an empty cache. Awake already: nothing
	// happens. After level 2 it fails when the file is gone or holds another model.
	// ErrClosed.
	Wake(ctx context.Context) error

	// Close gives everything back and waits for all goroutines. Twice is fine.
	Close() error
}

// Keeper is an Inferencer whose cache can outlive its sleep.
type Keeper interface {
	// SleepKeeping is Sleep at level 1, but the contents of these blocks stay in memory and are there after the next
	// Wake that succeeds. A Wake that fails and a Sleep at level 2 drop them. Asleep already, it does nothing. ErrClosed.
	SleepKeeping(blocks []int32) error

	// BlockBytes is the size of a block's contents.
	BlockBytes() int64

	// Export copies a block's contents, which somebody computed, to dst of BlockBytes bytes. It works awake, and for
	// blocks that a sleep has kept. ErrAsleep, ErrClosed.
	Export(block int32, dst []byte) error

	// Import makes src, of BlockBytes bytes, a block's contents. They must be what an Inferencer of the same model and
	// geometry has exported. ErrAsleep, ErrClosed.
	Import(block int32, src []byte) error
}

// Check tells whether a batch fits a model with c's shape and a cache of count blocks of
// size positions. Inferencers call it first; the error names the item and the limit.
// Adapters are the Inferencer's own to check.
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
	case it.Want > Hidden:
		return fmt.Errorf("want %d is unknown", it.Want)
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
