package route

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// In blocks: at least a million tokens.
	perPlace = 1 << 15
	// About 22 MiB, and 2 MiB more for every 64 places.
	maxBlocks = 1 << 18
	maxPlaces = 1 << 10
)

// places is a set of instances by number: bit n%64 of word n/64 is place n.
type places []uint64

func (p *places) Add(n int) {
	for len(*p) <= n/64 {
		*p = append(*p, 0)
	}
	(*p)[n/64] |= 1 << (n % 64)
}

func (p places) Has(n int) bool { return n >= 0 && n/64 < len(p) && p[n/64]&(1<<(n%64)) != 0 }

const noBlock int32 = -1

// indexBlock is a block of text after another. Those without followers, the ends, are in a list.
type indexBlock struct {
	hash       uint64
	salt       Salt
	used       int64 // the second of its last use, not before its followers'
	size       int32 // bytes of text
	before     int32 // noBlock: it is the first
	followers  int32
	prev, next int32 // among the ends
}

// prefixIndex is a forest of blocks that records which chains were sent where. A place that has seen a block has seen
// those before it. If it is full, the end of the least recently used chain is dropped. The zero value is empty.
type prefixIndex struct {
	limit  int              // in blocks
	byHash map[uint64]int32 // indices of blocks
	blocks []indexBlock
	// The places of block b are seen[b*words:(b+1)*words].
	seen   []uint64
	words  int
	places places
	sizes  []int   // bytes by place
	now    int64   // the latest second of a block
	n      int     // places in use
	unused []int32 // indices of blocks
	// Ends, most recently used first.
	newest, oldest int32
}

// -1: there are too many
func (x *prefixIndex) Place() int {
	for n := range maxPlaces {
		if !x.places.Has(n) {
			x.places.Add(n)
			if n == len(x.sizes) {
				x.sizes = append(x.sizes, 0)
			}
			x.n++
			x.limit = min(x.n*perPlace, maxBlocks)
			return n
		}
	}
	return -1
}

// The place stays allocated.
func (x *prefixIndex) Forget(n int) {
	if n < 0 || n/64 >= x.words {
		return
	}
	for at := n / 64; at < len(x.seen); at += x.words {
		x.seen[at] &^= 1 << (n % 64)
	}
	x.sizes[n] = 0
}

// In bytes.
func (x *prefixIndex) Size(n int) int {
	if n < 0 || n >= len(x.sizes) {
		return 0
	}
	return x.sizes[n]
}

// Trim forgets the least recently used blocks of place n, except those used after since, until most bytes are left.
// It scans all blocks; use by other places counts.
func (x *prefixIndex) Trim(n, most int, since time.Time) {
	if x.Size(n) <= most {
		return
	}
	word, bit := n/64, uint64(1)<<(n%64)
	var uses []use
	for b := range x.blocks {
		if x.seen[b*x.words+word]&bit != 0 {
			uses = append(uses, use{x.blocks[b].used, x.blocks[b].size})
		}
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.at, b.at) })
	until := int64(math.MinInt64) // whole seconds: no block goes without its followers
	for k, size := 0, x.sizes[n]; k < len(uses) && uses[k].at < since.Unix(); k++ {
		if uses[k].at != until && size <= most {
			break
		}
		until, size = uses[k].at, size-int(uses[k].size)
	}
	for b := range x.blocks {
		if at := b*x.words + word; x.seen[at]&bit != 0 && x.blocks[b].used <= until {
			x.seen[at] &^= bit
			x.sizes[n] -= int(x.blocks[b].size)
		}
	}
}

type use struct {
	at   int64
	size int32
}

func (x *prefixIndex) Remove(n int) {
	if n < 0 {
		return
	}
	x.Forget(n)
	x.places[n/64] &^= 1 << (n % 64)
	if x.n--; x.n == 0 {
		*x = prefixIndex{}
		return
	}
	x.limit = min(x.n*perPlace, maxBlocks)
	for len(x.byHash) > x.limit {
		x.drop(x.oldest)
	}
}

func (x *prefixIndex) Len() int { return len(x.byHash) }

// Find returns the length in blocks of the longest prefix that some places have seen, and which have, in into[:0].
func (x *prefixIndex) Find(c Chain, among places, into places) (depth int, seen places) {
	depth = x.deepest(c, func(b int32) bool {
		for w, word := range x.seenBy(b) {
			if w < len(among) && word&among[w] != 0 {
				return true
			}
		}
		return false
	})
	seen = into[:0]
	if depth == 0 {
		return 0, seen
	}
	for w, word := range x.seenBy(x.byHash[c.blocks[depth-1]]) {
		if w < len(among) {
			seen = append(seen, word&among[w])
		}
	}
	return depth, seen
}

// Seen returns how many blocks of c any place has seen.
func (x *prefixIndex) Seen(c Chain) int {
	return x.deepest(c, func(b int32) bool {
		return slices.ContainsFunc(x.seenBy(b), func(word uint64) bool { return word != 0 })
	})
}

// deepest returns the last block of c for which holds, by binary search: it must hold for all before.
func (x *prefixIndex) deepest(c Chain, holds func(int32) bool) int {
	low, high := 0, len(c.blocks) // the result is between low and high
	for low < high {
		mid := int(uint(low+high+1) / 2)
		if b := x.find(c, mid); b != noBlock && holds(b) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// n counts from 1.
func (x *prefixIndex) find(c Chain, n int) int32 {
	b, found := x.byHash[c.blocks[n-1]]
	if !found || x.blocks[b].salt != c.salt {
		return noBlock
	}
	return b
}

func (x *prefixIndex) seenBy(b int32) places {
	return x.seen[int(b)*x.words:][:x.words]
}

func (x *prefixIndex) Learn(c Chain, n int, now time.Time) {
	if !x.places.Has(n) || len(c.blocks) == 0 {
		return
	}
	x.now = max(x.now, now.Unix())
	x.widen(n/64 + 1)
	depth := x.deepest(c, func(int32) bool { return true })
	last := noBlock
	if depth > 0 {
		last = x.find(c, depth)
	}
	for b := last; b != noBlock && !(x.blocks[b].used == x.now && x.seenBy(b).Has(n)); b = x.blocks[b].before {
		x.blocks[b].used = x.now
		x.see(b, n)
	}
	for k, hash := range c.blocks[depth:] {
		b := x.add(indexBlock{hash: hash, salt: c.salt, used: x.now, size: int32(sizeOf(depth + k)), before: last, prev: noBlock, next: noBlock})
		if b == noBlock {
			break
		}
		x.see(b, n)
		last = b
	}
	if last != noBlock && x.blocks[last].followers == 0 {
		x.unlink(last)
		x.push(last)
	}
}

// Unlearn undoes Learn, except for what c shares with others.
func (x *prefixIndex) Unlearn(c Chain, n int) {
	followers := int32(0)
	for k := x.deepest(c, func(b int32) bool { return x.seenBy(b).Has(n) }); k > 0; k-- {
		b := x.find(c, k)
		if x.blocks[b].followers > followers {
			return
		}
		x.seenBy(b)[n/64] &^= 1 << (n % 64)
		x.sizes[n] -= int(x.blocks[b].size)
		followers = 1
	}
}

func (x *prefixIndex) see(b int32, n int) {
	if word, bit := &x.seenBy(b)[n/64], uint64(1)<<(n%64); *word&bit == 0 {
		*word |= bit
		x.sizes[n] += int(x.blocks[b].size)
	}
}

// add appends a block. It returns noBlock if another prompt has its hash, or if only its own predecessors could be
// dropped.
func (x *prefixIndex) add(b indexBlock) int32 {
	if _, taken := x.byHash[b.hash]; taken {
		return noBlock
	}
	if b.before != noBlock {
		x.unlink(b.before) // keep it from being dropped
		x.blocks[b.before].followers++
	}
	for len(x.byHash) >= x.limit {
		if x.oldest == noBlock {
			x.blocks[b.before].followers--
			x.push(b.before)
			return noBlock
		}
		x.drop(x.oldest)
	}
	at := int32(len(x.blocks))
	if k := len(x.unused) - 1; k >= 0 {
		at, x.unused = x.unused[k], x.unused[:k]
		x.blocks[at] = b
	} else {
		x.blocks = append(x.blocks, b)
		for range x.words {
			x.seen = append(x.seen, 0)
		}
	}
	x.byHash[b.hash] = at
	x.push(at)
	return at
}

func (x *prefixIndex) drop(b int32) {
	x.unlink(b)
	for w, word := range x.seenBy(b) {
		for ; word != 0; word &= word - 1 {
			x.sizes[64*w+bits.TrailingZeros64(word)] -= int(x.blocks[b].size)
		}
		x.seenBy(b)[w] = 0
	}
	delete(x.byHash, x.blocks[b].hash)
	x.unused = append(x.unused, b)
	before := x.blocks[b].before
	if before == noBlock {
		return
	}
	x.blocks[before].followers--
	if x.blocks[before].followers == 0 { // an end of the least recently used chain
		x.blocks[before].prev, x.blocks[before].next = x.oldest, noBlock
		if x.oldest != noBlock {
			x.blocks[x.oldest].next = before
		} else {
			x.newest = before
		}
		x.oldest = before
	}
}

func (x *prefixIndex) push(b int32) {
	x.blocks[b].prev, x.blocks[b].next = noBlock, x.newest
	if x.newest != noBlock {
		x.blocks[x.newest].prev = b
	} else {
		x.oldest = b
	}
	x.newest = b
}

// Blocks outside of the list stay.
func (x *prefixIndex) unlink(b int32) {
	prev, next := x.blocks[b].prev, x.blocks[b].next
	switch {
	case prev != noBlock:
		x.blocks[prev].next = next
	case x.newest == b:
		x.newest = next
	default:
		return
	}
	if next != noBlock {
		x.blocks[next].prev = prev
	} else {
		x.oldest = prev
	}
	x.blocks[b].prev, x.blocks[b].next = noBlock, noBlock
}

func (x *prefixIndex) widen(words int) {
	if x.byHash == nil {
		x.byHash = make(map[uint64]int32)
		x.newest, x.oldest = noBlock, noBlock
		x.words = words
		return
	}
	if words <= x.words {
		return
	}
	words = 1 << bits.Len(uint(words-1))
	wide := make([]uint64, len(x.blocks)*words)
	for b := range x.blocks {
		copy(wide[b*words:], x.seenBy(int32(b)))
	}
	x.seen, x.words = wide, words
}

// Sizes in bytes. In a long prompt, the exact place of a difference matters less.
const (
	shortBlock  = 128 // about 32 tokens, two blocks of vLLM's
	longBlock   = 1024
	shortBlocks = 512
	// About 150,000 tokens; text beyond does not matter.
	maxChain = 1024
)

func sizeOf(n int) int {
	if n < shortBlocks {
		return shortBlock
	}
	return longBlock
}

func bytesOf(n int) int { return min(n, shortBlocks)*shortBlock + max(0, n-shortBlocks)*longBlock }

// Salt separates the caches of requests.
type Salt uint64

// SaltOf returns the salt for names: tenants, adapters, clients' salts.
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

// Chain is a request's prefix, as hashes. It is immutable.
type Chain struct {
	salt   Salt
	blocks []uint64
}

// ChainOf returns the chain of a request's parts as rendered. A request that continues another repeats all parts
// but the last: of that, the incomplete block and the last byte, a bracket or quote, are left out.
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

func (c Chain) Len() int { return len(c.blocks) }

// Key returns the hash of the first block after the seen ones, by which activators agree on a place. 0: c has no
// block.
func (c Chain) Key(seen int) uint64 {
	if len(c.blocks) == 0 {
		return 0
	}
	return c.blocks[min(seen, len(c.blocks)-1)]
}

// The last step of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Rendezvous hashing: if a place is removed only its keys move.
func prefers(key, place uint64) uint64 { return mix(key ^ mix(place)) }

// Hash returns the hash of a name, for [prefers].
func Hash(name string) uint64 { return xxhash.Sum64String(name) }
