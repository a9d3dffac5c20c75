package block

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Hash names the contents of a block: its tokens, all tokens before them, and what else
// decides what the model computes there (see [Key]). It is the first half of a SHA-256:
// no client can make two different prefixes with one name, so what one tenant computes can't
// be slipped to another one.
type Hash [16]byte

// Key is what two sequences must have in common, besides their tokens, to share blocks.
type Key struct {
	Adapter string // whose weights are added to the model's; "" for none. An adapter that is loaded anew needs another string
	Salt    string // kept secret, it keeps others from finding out by timing what was asked before; "" shares with everybody
}

// Root is what a sequence's chain of hashes begins with. That of the zero Key is zero.
func (k Key) Root() Hash {
	if k == (Key{}) {
		return Hash{}
	}
	buf := binary.AppendUvarint(nil, uint64(len(k.Adapter)))
	buf = append(append(buf, k.Adapter...), k.Salt...)
	sum := sha256.Sum256(buf)
	return Hash(sum[:16])
}

// chunk is how many tokens of a block go into one hash. A block of more is a chain of its own.
const chunk = 16

// Next is the name of a block with these tokens that follows a block named h, or a root.
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

// Chain appends to hashes, which name the first full blocks of tokens, the names of the rest
// of the full blocks of size tokens.
func Chain(hashes []Hash, root Hash, tokens []int32, size int) []Hash {
	for i := len(hashes); (i+1)*size <= len(tokens); i++ {
		if i > 0 {
			root = hashes[i-1]
		}
		hashes = append(hashes, root.Next(tokens[i*size:(i+1)*size]))
	}
	return hashes
}

// Register names a held block. Its positions must hold what the name says before a sequence that
// finds it reads them. When the name is taken, or the block has one, nothing happens. It
// panics when the block is free.
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

// Lookup finds a block by name and changes nothing.
func (p *Pool) Lookup(h Hash) (id int32, ok bool) {
	if id, ok = p.names.at(p.names.find(&h, p.hash)); !ok {
		return 0, false
	}
	return id, true
}

// Take finds a block by name and adds a holder, to a free one the first.
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

// Match counts how many of the hashes, from the first on, name a block, and how many of those
// blocks are free: taking them takes from [Pool.Available].
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

// Evict takes the names of all blocks: what they hold is gone. Their holders keep them.
func (p *Pool) Evict() {
	for p.idle > 0 {
		id := p.prev[len(p.refs)] // the newest first, so that the oldest is on top: the order stays
		p.unlink(id)
		p.plain = append(p.plain, id)
	}
	p.names.clear()
	clear(p.named)
}

// forget takes one block's name.
func (p *Pool) forget(id int32) {
	p.names.remove(&p.hash[id], p.hash)
	p.named[id] = false
}

// Check verifies the books: each block is either held, or once among the free ones; names and
// blocks agree. It looks at every block; call it in tests and when idle.
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

// checkFree verifies one entry of the free ones and marks it as seen.
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
