package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// A decoder refuses more.
const (
	MaxItems     = 1 << 16 // sequences in a batch
	MaxPositions = 1 << 24 // of a sequence
	maxMask      = 1 << 16 // words
	maxMaskWords = 1 << 22 // words in all masks of a batch
)

// Batch is one step.
type Batch struct {
	Step   uint64   `json:"step"`
	Ends   []uint64 `json:"ends,omitempty"`
	Copies []Copy   `json:"copies,omitempty"`
	Items  []Item   `json:"items,omitempty"`

	ints  []int32
	words []uint64
	bytes []byte
}

// Copy copies a whole cache block.
type Copy struct {
	From int32 `json:"from"`
	To   int32 `json:"to"`
}

// Item computes a sequence's tokens at positions Pos to Pos+Count-1.
type Item struct {
	ID     uint64  `json:"id"`
	Pos    int     `json:"pos"`
	Count  int     `json:"count"`
	Blocks []int32 `json:"blocks,omitempty"` // to append
	Sample bool    `json:"sample,omitempty"`
	Score  bool    `json:"score,omitempty"`
	Pool   bool    `json:"pool,omitempty"`
	// Begin starts the sequence, or replaces the one of this ID, with the next three fields.
	Begin  bool            `json:"begin,omitempty"`
	Prompt int             `json:"prompt,omitempty"` // in Tokens
	Tokens []int32         `json:"tokens,omitempty"`
	Spec   json.RawMessage `json:"spec,omitempty"`
	// Draft holds guesses, the last of the Count tokens.
	Draft []int32 `json:"draft,omitempty"`
	// Mask has the tokens that may be chosen; empty: all.
	Mask []uint64 `json:"mask,omitempty"`
}

const (
	flagBegin byte = 1 << iota
	flagSample
	flagScore
	flagPool
	flagMask
	flagDraft
	flagMany
	flagBlocks
)

func (it *Item) flags() (f byte) {
	if it.Begin {
		f |= flagBegin
	}
	if it.Sample {
		f |= flagSample
	}
	if it.Score {
		f |= flagScore
	}
	if it.Pool {
		f |= flagPool
	}
	if len(it.Mask) > 0 {
		f |= flagMask
	}
	if len(it.Draft) > 0 {
		f |= flagDraft
	}
	if it.Count != 1 {
		f |= flagMany
	}
	if len(it.Blocks) > 0 {
		f |= flagBlocks
	}
	return f
}

// AppendBatch appends a batch's payload.
func AppendBatch(dst []byte, b *Batch) []byte {
	dst = binary.AppendUvarint(dst, b.Step)
	dst = binary.AppendUvarint(dst, uint64(len(b.Ends)))
	last := uint64(0)
	for _, id := range b.Ends {
		dst = appendID(dst, id, &last)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.Copies)))
	for _, c := range b.Copies {
		dst = binary.AppendUvarint(dst, uint64(c.From))
		dst = binary.AppendUvarint(dst, uint64(c.To))
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.Items)))
	last = 0
	for i := range b.Items {
		dst = appendID(dst, b.Items[i].ID, &last)
		dst = appendItem(dst, &b.Items[i])
	}
	return dst
}

func appendItem(dst []byte, it *Item) []byte {
	flags := it.flags()
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(it.Pos))
	if flags&flagMany != 0 {
		dst = binary.AppendUvarint(dst, uint64(it.Count))
	}
	if flags&flagBlocks != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(it.Blocks)))
		last := int32(0)
		for _, b := range it.Blocks {
			dst = binary.AppendVarint(dst, int64(b-last))
			last = b
		}
	}
	if flags&flagBegin != 0 {
		dst = binary.AppendUvarint(dst, uint64(it.Prompt))
		dst = appendTokens(dst, it.Tokens)
		dst = appendText(dst, it.Spec)
	}
	if flags&flagDraft != 0 {
		dst = appendTokens(dst, it.Draft)
	}
	if flags&flagMask != 0 {
		dst = appendMask(dst, it.Mask)
	}
	return dst
}

func appendID(dst []byte, id uint64, last *uint64) []byte {
	d := int64(id - *last)
	*last = id
	if uint64(d+64) < 128 { // most ids lie close together
		return append(dst, byte(d<<1)^byte(d>>63))
	}
	return binary.AppendVarint(dst, d)
}

func appendTokens(dst []byte, tokens []int32) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(tokens)))
	for _, t := range tokens {
		dst = binary.AppendUvarint(dst, uint64(uint32(t)))
	}
	return dst
}

func appendText[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// appendMask leaves out zeros if that is shorter.
func appendMask(dst []byte, mask []uint64) []byte {
	filled := 0
	for _, w := range mask {
		if w != 0 {
			filled++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(mask)))
	if 9*filled >= 8*len(mask) {
		dst = binary.AppendUvarint(dst, uint64(len(mask)))
		for _, w := range mask {
			dst = binary.LittleEndian.AppendUint64(dst, w)
		}
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(filled))
	gap := uint64(0)
	for _, w := range mask {
		if w == 0 {
			gap++
			continue
		}
		dst = binary.AppendUvarint(dst, gap)
		dst = binary.LittleEndian.AppendUint64(dst, w)
		gap = 0
	}
	return dst
}

// DecodeBatch reuses b's memory. b keeps nothing of payload.
func DecodeBatch(payload []byte, b *Batch) error {
	r := reader{b: payload}
	b.ints, b.words, b.bytes = b.ints[:0], b.words[:0], b.bytes[:0]
	b.Ends, b.Copies, b.Items = b.Ends[:0], b.Copies[:0], b.Items[:0]
	b.Step = r.uvarint()
	last := uint64(0)
	for range r.count(1) {
		b.Ends = append(b.Ends, r.id(&last))
	}
	for range r.count(2) {
		b.Copies = append(b.Copies, Copy{From: r.int32(), To: r.int32()})
	}
	n := r.count(3)
	if n > MaxItems {
		r.fail("%d items: at most %d are allowed", n, MaxItems)
		n = 0
	}
	last = 0
	b.Items = slices.Grow(b.Items, n)[:n]
	for i := 0; i < n && r.err == nil; i++ {
		it := &b.Items[i]
		*it = Item{}
		it.ID = r.id(&last)
		b.readItem(&r, it)
	}
	if err := r.end(); err != nil {
		return fmt.Errorf("decode a batch: %w", err)
	}
	return nil
}

func (b *Batch) readItem(r *reader, it *Item) {
	flags := r.byte()
	it.Begin, it.Sample, it.Score, it.Pool = flags&flagBegin != 0, flags&flagSample != 0, flags&flagScore != 0, flags&flagPool != 0
	it.Pos, it.Count = r.size(MaxPositions), 1
	if flags&flagMany != 0 {
		it.Count = r.size(MaxPositions)
	}
	if flags&flagBlocks != 0 {
		n, last := r.count(1), int64(0)
		at := len(b.ints)
		for range n {
			last += r.svarint()
			if last < 0 || last > 1<<31-1 {
				r.fail("a block's number is %d", last)
				return
			}
			b.ints = append(b.ints, int32(last))
		}
		it.Blocks = b.ints[at:len(b.ints):len(b.ints)]
	}
	if flags&flagBegin != 0 {
		it.Prompt = r.size(MaxPositions)
		it.Tokens = b.readTokens(r)
		spec := r.bytes(r.count(1))
		at := len(b.bytes)
		b.bytes = append(b.bytes, spec...)
		it.Spec = b.bytes[at:len(b.bytes):len(b.bytes)]
	}
	if flags&flagDraft != 0 {
		it.Draft = b.readTokens(r)
	}
	if flags&flagMask != 0 {
		it.Mask = b.readMask(r)
	}
	if err := it.check(flags); err != nil && r.err == nil {
		r.err = fmt.Errorf("sequence %d: %w", it.ID, err)
	}
}

func (it *Item) check(flags byte) error {
	switch {
	case it.Count < 1 || flags&flagMany != 0 && it.Count == 1:
		return fmt.Errorf("%d tokens to compute", it.Count)
	case it.Prompt > len(it.Tokens):
		return fmt.Errorf("%d tokens of a prompt, and %d tokens", it.Prompt, len(it.Tokens))
	case len(it.Draft) >= it.Count:
		return fmt.Errorf("%d guesses in %d tokens", len(it.Draft), it.Count)
	case flags&flagDraft != 0 && (len(it.Draft) == 0 || !it.Sample):
		return errors.New("guesses, and no token to choose")
	case flags&flagMask != 0 && (len(it.Mask) == 0 || !it.Sample || len(it.Draft) > 0):
		return errors.New("a mask without tokens, without a choice, or with guesses")
	case flags&flagBlocks != 0 && len(it.Blocks) == 0:
		return errors.New("blocks, and none is named")
	}
	return nil
}

func (b *Batch) readTokens(r *reader) []int32 {
	at := len(b.ints)
	for range r.count(1) {
		b.ints = append(b.ints, r.int32())
	}
	return b.ints[at:len(b.ints):len(b.ints)]
}

func (b *Batch) readMask(r *reader) []uint64 {
	words := r.size(maxMask)
	filled := r.size(words)
	if words+len(b.words) > maxMaskWords {
		r.fail("masks of more than %d words", maxMaskWords)
	}
	if r.err != nil || filled*8 > len(r.b) {
		r.fail("a mask of %d words is cut off", filled)
		return nil
	}
	at := len(b.words)
	if filled == words {
		for range words {
			b.words = append(b.words, r.word())
		}
		return b.words[at:len(b.words):len(b.words)]
	}
	b.words = append(b.words, make([]uint64, words)...)
	mask := b.words[at:len(b.words):len(b.words)]
	for i, k := 0, 0; k < filled; i, k = i+1, k+1 {
		i += r.size(maxMaskWords)
		w := r.word()
		if r.err != nil || i >= words {
			r.fail("a mask's word %d of %d", i, words)
			return nil
		}
		mask[i] = w
	}
	return mask
}
