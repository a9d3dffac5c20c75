package block

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Hash names a block's contents: its tokens, all before them, and the [Key]. It is half a SHA-256: no client can make
// two prefixes of one name.
type Hash [16]byte

// Key must be equal in two sequences that share blocks.
type Key struct {
	Adapter string // "": none. A reloaded adapter needs another identity
	Images  string // identity of all images; "": none
	Salt    string // keeps others from finding cached prompts by timing; "": shared with everybody
}

// Root begins a sequence's chain. The zero Key's is zero.
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

const chunk = 16

// Next returns the name of a block after one named h, or a root.
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

// Chain appends the names of full blocks to hashes, which has the first ones.
func Chain(hashes []Hash, root Hash, tokens []int32, size int) []Hash {
	for i := len(hashes); (i+1)*size <= len(tokens); i++ {
		if i > 0 {
			root = hashes[i-1]
		}
		hashes = append(hashes, root.Next(tokens[i*size:(i+1)*size]))
	}
	return hashes
}

// Register names a held block, which must be computed before it is read, unless the name is taken, or the block has
// one. It panics if the block is free.
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

// Lookup finds a block by name.
func (p *Pool) Lookup(h Hash) (id int32, ok bool) {
	if id, ok = p.names.at(p.names.find(&h, p.hash)); !ok {
		return 0, false
	}
	return id, true
}

// Take finds a block, free or not, and adds a holder.
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

// Match returns how many of the first hashes name a block, and how many of those are free.
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

// Evict removes all names: the contents are lost. Holders keep their blocks.
func (p *Pool) Evict() {
	for p.idle > 0 {
		id := p.prev[len(p.refs)] // the newest first keeps the order
		p.unlink(id)
		p.plain = append(p.plain, id)
	}
	p.names.clear()
	clear(p.named)
}

func (p *Pool) forget(id int32) {
	p.names.remove(&p.hash[id], p.hash)
	p.named[id] = false
}

// Check verifies the invariants. It is slow, for tests.
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
