package block

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Hash names the contents of a block: its tokens, all tokens before them, and the [Key]. It is the first half of a
// SHA-256, so no client can make two different prefixes with the same name, and one tenant can't poison the cache of
// another.
type Hash [16]byte

// Key must be equal in two sequences that share blocks, besides their tokens.
type Key struct {
	Adapter string // identity of the adapter; "" for none. A reloaded adapter needs another string
	Images  string // identity of all images in the prompt; "" for none
	Salt    string // a secret salt keeps others from finding cached prompts by timing; "" shares with everybody
}

// Root returns the hash that a sequence's chain begins with. The zero Key's root is zero.
func (k Key) Root() Hash {
	if k == (Key{}) {
		return Hash{}
	}
	buf := binary.AppendUvarint(nil, uint64(len(k.Adapter)))
	buf = append(append(buf, k.Adapter...), k.Salt...)
	sum := sha256.Sum256(buf)
	if k.Images != "" {
		sum = sha256.Sum256(append(sum[:16:16], k.Images...))
	}
	return Hash(sum[:16])
}

// chunk is the number of tokens per SHA-256. A larger block is hashed as a chain of chunks.
const chunk = 16

// Next returns the name of a block with these tokens, after a block named h or a root.
func (h Hash) Next(tokens []int32) Hash {
	var buf [16 + 4*chunk]byte
	for len(tokens) > 0 {
		n := min(chunk, len(tokens))
		copy(buf[:], h[:])
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[16+4*i:], uint32(t))
		}
		sum := sha256.Sum256(buf[:16+4*n])
		h, tokens = Hash(sum[:16]), tokens[n:]
	}
	return h
}

// Chain appends the names of the full blocks of size tokens to hashes, which already has the names of the first ones.
func Chain(hashes []Hash, root Hash, tokens []int32, size int) []Hash {
	for i := len(hashes); (i+1)*size <= len(tokens); i++ {
		if i > 0 {
			root = hashes[i-1]
		}
		hashes = append(hashes, root.Next(tokens[i*size:(i+1)*size]))
	}
	return hashes
}

// Register names a held block. The block must be computed before a sequence that finds it reads it. If the name is
// taken, or the block has one, nothing happens. It panics if the block is free.
func (p *Pool) Register(id int32, h Hash) {
	if p.refs[id] <= 0 {
		panic(fmt.Sprintf("block: register of block %d, which is free", id))
	}
	if p.named[id] {
		return
	}
	i := p.names.find(&h, p.hash)
	if _, taken := p.names.at(i); taken {
		return
	}
	p.names.set(i, &h, id)
	p.hash[id], p.named[id] = h, true
}

// Lookup finds a block by name, without side effects.
func (p *Pool) Lookup(h Hash) (id int32, ok bool) {
	if id, ok = p.names.at(p.names.find(&h, p.hash)); !ok {
		return 0, false
	}
	return id, true
}

// Take finds a block by name and adds a holder; the block may be free.
func (p *Pool) Take(h Hash) (id int32, ok bool) {
	if id, ok = p.Lookup(h); !ok {
		return 0, false
	}
	if p.refs[id] == 0 {
		p.unlink(id)
	}
	p.refs[id]++
	return id, true
}

// Match returns how many of the first hashes name a block, and how many of those blocks are free: taking them reduces
// [Pool.Available].
func (p *Pool) Match(hashes []Hash) (found, free int) {
	for _, h := range hashes {
		id, ok := p.Lookup(h)
		if !ok {
			break
		}
		found++
		if p.refs[id] == 0 {
			free++
		}
	}
	return found, free
}

// Evict removes the names of all blocks, because their contents are lost. Holders keep their blocks.
func (p *Pool) Evict() {
	for p.idle > 0 {
		id := p.prev[len(p.refs)] // the newest first, so that the oldest is on top and the order is kept
		p.unlink(id)
		p.plain = append(p.plain, id)
	}
	p.names.clear()
	clear(p.named)
}

// forget removes one block's name.
func (p *Pool) forget(id int32) {
	p.names.remove(&p.hash[id], p.hash)
	p.named[id] = false
}

// Check verifies the invariants: each block is either held or once in a free list, and names match blocks. It visits
// every block; call it in tests and when idle.
func (p *Pool) Check() error {
	seen := make([]bool, len(p.refs))
	for _, id := range p.plain {
		if err := p.checkFree(id, seen); err != nil {
			return err
		}
		if p.named[id] {
			return fmt.Errorf("block %d has a name and is among those without", id)
		}
	}
	ring := 0
	end := int32(len(p.refs))
	for id := p.next[end]; id != end; id = p.next[id] {
		if err := p.checkFree(id, seen); err != nil {
			return err
		}
		if !p.named[id] || p.prev[p.next[id]] != id {
			return fmt.Errorf("block %d is badly linked, or has no name and is among those with one", id)
		}
		ring++
	}
	if ring != p.idle {
		return fmt.Errorf("%d free blocks with a name, the books say %d", ring, p.idle)
	}
	names := 0
	for id, n := range p.refs {
		if n < 0 || n == 0 && !seen[id] {
			return fmt.Errorf("block %d has %d holders and is not among the free ones", id, n)
		}
		if p.named[id] {
			names++
			if got, ok := p.Lookup(p.hash[id]); !ok || got != int32(id) {
				return fmt.Errorf("block %d is not found under its name", id)
			}
		}
	}
	if names != p.names.len {
		return fmt.Errorf("%d blocks have a name, %d names are known", names, p.names.len)
	}
	return nil
}

// checkFree verifies one free block and marks it as seen.
func (p *Pool) checkFree(id int32, seen []bool) error {
	switch {
	case id < 0 || int(id) >= len(p.refs):
		return fmt.Errorf("block %d of %d is among the free ones", id, len(p.refs))
	case seen[id]:
		return fmt.Errorf("block %d is among the free ones twice", id)
	case p.refs[id] != 0:
		return fmt.Errorf("block %d is among the free ones and has %d holders", id, p.refs[id])
	}
	seen[id] = true
	return nil
}
