package route

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// The sizes of blocks in bytes of text. In a long prompt, the exact place of a difference matters less.
const (
	shortBlock = 128 // about 32 tokens, two blocks of vLLM's
	longBlock  = 1024
	// shortBlocks is the number of short blocks, before the long ones.
	shortBlocks = 512
	// maxChain bounds a chain: text beyond about 150,000 tokens does not change where the request goes.
	maxChain = 1024
)

// sizeOf returns the size of block n, from 0.
func sizeOf(n int) int {
	if n < shortBlocks {
		return shortBlock
	}
	return longBlock
}

// bytesOf returns about how much text the first n blocks of a chain have.
func bytesOf(n int) int { return min(n, shortBlocks)*shortBlock + max(0, n-shortBlocks)*longBlock }

// Salt separates the caches of requests.
type Salt uint64

// SaltOf returns the salt for the names that separate caches: tenants, adapters, the client's own salts.
func SaltOf(names ...string) Salt {
	h := sha256.New()
	var size [8]byte
	for _, name := range names {
		binary.LittleEndian.PutUint64(size[:], uint64(len(name)))
		h.Write(size[:])
		h.Write([]byte(name))
	}
	return Salt(binary.LittleEndian.Uint64(h.Sum(nil)))
}

// Chain is the prefix of one request. The zero value has no blocks. It is immutable and holds no text.
type Chain struct {
	salt   Salt
	blocks []uint64
}

// ChainOf returns the chain of a request's parts, in the order in which they are rendered. A request that continues
// another repeats all parts but the last unchanged. The last part grows, so Of leaves out its incomplete last block,
// and its last byte, a bracket or quote that moves when more text follows.
func ChainOf(salt Salt, parts ...[]byte) Chain {
	parts = trim(parts)
	n := 0
	for _, p := range parts {
		n += len(p)/shortBlock + 1
	}
	c := Chain{salt: salt, blocks: make([]uint64, 0, min(n, maxChain))}
	h := uint64(salt)
	for k, p := range parts {
		h = mix(h + uint64(k))
		for len(c.blocks) < maxChain {
			size := sizeOf(len(c.blocks))
			if len(p) < size {
				break
			}
			h = mix(h ^ xxhash.Sum64(p[:size]))
			c.blocks = append(c.blocks, h)
			p = p[size:]
		}
		if last := k == len(parts)-1; !last && len(p) > 0 && len(c.blocks) < maxChain {
			h = mix(h ^ xxhash.Sum64(p))
			c.blocks = append(c.blocks, h)
		}
	}
	return c
}

// trim removes the empty parts at the end, and the last byte.
func trim(parts [][]byte) [][]byte {
	for len(parts) > 0 && len(parts[len(parts)-1]) == 0 {
		parts = parts[:len(parts)-1]
	}
	if len(parts) == 0 {
		return nil
	}
	out := append(make([][]byte, 0, 4), parts...)
	last := &out[len(out)-1]
	*last = (*last)[:len(*last)-1]
	return out
}

// Len returns the number of blocks.
func (c Chain) Len() int { return len(c.blocks) }

// Key returns a number that activators with no knowledge of earlier requests use to send a request to the same place:
// the hash of the first block after the seen ones. A beginning that many requests share is soon seen everywhere. So
// this is the request's first own block, in each turn of a conversation. 0: c has no block.
func (c Chain) Key(seen int) uint64 {
	if len(c.blocks) == 0 {
		return 0
	}
	return c.blocks[min(seen, len(c.blocks)-1)]
}

// mix is the last step of splitmix64: each bit of the result depends on every bit of x.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// prefers returns how much key prefers the place with that hash. The most preferred place is the same for every
// caller, and when a place is removed only its own keys move (rendezvous hashing).
func prefers(key, place uint64) uint64 { return mix(key ^ mix(place)) }

// Hash returns the hash of a name, for [prefers].
func Hash(name string) uint64 { return xxhash.Sum64String(name) }
