package block_test

import (
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
)

// BenchmarkNext names one block of 16 tokens.
func BenchmarkNext(b *testing.B) {
	tokens := make([]int32, 16)
	var h block.Hash
	for b.Loop() {
		h = h.Next(tokens)
	}
}

// BenchmarkLife allocates, names and frees a block in a cache that is full.
func BenchmarkLife(b *testing.B) {
	const count = 1 << 14
	p := block.New(count, 16)
	tokens := make([]int32, 16)
	hashes := make([]block.Hash, 4*count)
	for i := range hashes {
		tokens[0] = int32(i)
		hashes[i] = block.Hash{}.Next(tokens)
	}
	i := 0
	for b.Loop() {
		id, _ := p.Alloc()
		p.Register(id, hashes[i&(len(hashes)-1)])
		p.Free(id)
		i++
	}
}
