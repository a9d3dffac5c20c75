// Package prefix knows which instances have seen the beginning of a request, so that the request can go where its
// prompt is in the cache of the model server.
//
// A request's prefix is a [Chain]: what its prompt is rendered from (system, tools and messages, in this order) is cut into
// blocks, and each block's hash covers all that comes before it. Two requests have a block in common only where they are the same up
// to its end. The text is hashed as the client has written it: a client that goes on with a conversation repeats
// its bytes. White space and escapes count, so two clients that write the same conversation differently share nothing.
//
// A chain begins with a [Salt], which says of what caches keep apart whose it is: requests with different salts
// never share a block, for each block of the index knows its salt.
//
// An [Index] remembers, for the instances of one function, which blocks were sent where:
//
//  1. [Index.Learn] notes that a chain was sent to an instance. Only what is new of it costs anything.
//  2. [Index.Find] finds how much of a chain any of some instances has seen, and which. It looks at a few blocks only: an instance that has seen
//     a block has seen those before it, so the longest known prefix is found by halving.
//  3. Where the index is full, the end of the chain that was not used for the longest time is forgotten.
//  4. [Index.Forget] forgets an instance: it has gone, or has slept and lost its cache.
//  5. [Index.Trim] forgets what was used longest ago at an instance, down to what its cache has by its own account: that is the order in which
//     model servers evict.
//
// It is an estimate: it does not know which blocks a model server has evicted, nor what other activators have sent there.
//
// An Index is not safe for concurrent use: one mutex of its owner guards it. It holds no text.
package prefix

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Sizes of blocks in bytes of text. In a long prompt, less depends on where exactly it differs from another one.
const (
	Block     = 128 // about 32 tokens, two blocks of vLLM's
	LongBlock = 1024
	// shortBlocks are followed by long ones.
	shortBlocks = 512
	// MaxBlocks bounds a chain: what comes behind about 150,000 tokens does not change where it goes.
	MaxBlocks = 1024
)

// sizeOf is how long block n is, from 0.
func sizeOf(n int) int {
	if n < shortBlocks {
		return Block
	}
	return LongBlock
}

// Bytes is about how much text the first n blocks of a chain have.
func Bytes(n int) int { return min(n, shortBlocks)*Block + max(0, n-shortBlocks)*LongBlock }

// Salt is what keeps the caches of requests apart.
type Salt uint64

// SaltOf is the salt of what caches keep apart: tenants, adapters, salts of the client's own.
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

// Chain is the prefix of one request. The zero value has no blocks. It does not change and holds no text.
type Chain struct {
	salt   Salt
	blocks []uint64
}

// Of makes the chain of a request's parts, in the order in which they are rendered. All parts but the last are whole in each request
// that repeats them; the last one grows, so an incomplete block at its end is left out, and so is its last byte, a
// bracket or quote that is somewhere else as soon as more follows.
func Of(salt Salt, parts ...[]byte) Chain {
	parts = trim(parts)
	n := 0
	for _, p := range parts {
		n += len(p)/Block + 1
	}
	c := Chain{salt: salt, blocks: make([]uint64, 0, min(n, MaxBlocks))}
	h := uint64(salt)
	for k, p := range parts {
		h = mix(h + uint64(k))
		for len(c.blocks) < MaxBlocks {
			size := sizeOf(len(c.blocks))
			if len(p) < size {
				break
			}
			h = mix(h ^ xxhash.Sum64(p[:size]))
			c.blocks = append(c.blocks, h)
			p = p[size:]
		}
		if last := k == len(parts)-1; !last && len(p) > 0 && len(c.blocks) < MaxBlocks {
			h = mix(h ^ xxhash.Sum64(p))
			c.blocks = append(c.blocks, h)
		}
	}
	return c
}

// trim leaves out the empty parts at the end, and the last byte.
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

// Len is how many blocks c has.
func (c Chain) Len() int { return len(c.blocks) }

// Key is a number by which a request can be sent to the same place by those that don't know where it was sent before: the hash of the
// first block behind those that were seen. What many requests begin with is soon seen everywhere, so that is the first one of
// their own, in each turn of a conversation. 0: c has no block.
func (c Chain) Key(seen int) uint64 {
	if len(c.blocks) == 0 {
		return 0
	}
	return c.blocks[min(seen, len(c.blocks)-1)]
}

// mix is the last step of splitmix64: each bit of the result depends on each of x.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Prefers is how much key prefers the place with that hash to others; the one that it prefers most is the same for
// everybody who asks, and when a place goes away only its own keys move.
func Prefers(key, place uint64) uint64 { return mix(key ^ mix(place)) }

// Hash is the hash of a name, for [Prefers].
func Hash(name string) uint64 { return xxhash.Sum64String(name) }
